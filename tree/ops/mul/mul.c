#include "mul.h"
const op_desc keel_op_mul = {0};
