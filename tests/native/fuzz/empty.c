/* Nothing: compiled to find out whether the compiler has what a test needs. */
int main(void) { return 0; }
