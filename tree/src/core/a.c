#include "core/a.h"
int a(void) { return 1; } /* printf( in a comment, abort() too */
int  badly( void ){return 1;}
