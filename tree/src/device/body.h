typedef int adder; /* add */
