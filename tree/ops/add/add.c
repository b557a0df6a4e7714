#include "add.h"
const op_desc keel_op_add = {0};
