"""What the extension modules take from atomics.h. See there."""

cdef extern from "atomics.h" nogil:
    int ms_take(int* flag)
    void ms_give_back(int* flag)
    void ms_add(int* counter, int n)
