// Instructions that are empty where the CPU has no SMAP, and their addresses for `protect.rs`,
// which puts STAC and CLAC there. The flag that they set and clear says that the kernel may
// reach a program's memory: no way into the kernel leaves it set.
    .macro SITE list
    .pushsection .smap.\list, "a", @progbits
    .quad 661f
    .popsection
661:
    .byte 0x0f, 0x1f, 0x00
    .endm
    .macro STAC
    SITE stac
    .endm
    .macro CLAC
    SITE clac
    .endm
