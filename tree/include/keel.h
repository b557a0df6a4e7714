/* A thing. */
int keel_thing(void);
