// From the start-up interrupt (real mode, at the page that it names) to `ap_main` in long mode.
// AT&T syntax. The code up to `trampoline_end` is copied to that page, whose address smp.rs adds to
// that of the jump in it; it runs on the first segments and tables of boot.s, which map both at
// their physical addresses.

    .section .rodata.trampoline, "a", @progbits
    .balign 16
    .code16
    .globl trampoline_start
trampoline_start:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    lgdtl trampoline_gdt_pointer - trampoline_start

    movl trampoline_root - trampoline_start, %eax
    movl %eax, %cr3
    movl $(1 << 5), %eax                    // PAE
    movl %eax, %cr4
    movl $0xc0000080, %ecx                  // EFER
    movl $(1 << 0 | 1 << 8 | 1 << 11), %eax // SCE, LME, NXE
    xorl %edx, %edx
    wrmsr
    // PG, WP, NE, ET, PE: straight to long mode, with the caches on.
    movl $(1 << 31 | 1 << 16 | 1 << 5 | 1 << 4 | 1 << 0), %eax
    movl %eax, %cr0
    ljmpl *(trampoline_jump - trampoline_start)

    .code64
trampoline_64:
    movabsq $ap_high, %rax
    jmpq *%rax

    .balign 8
    .globl trampoline_jump
trampoline_jump:
    .long trampoline_64 - trampoline_start  // the page's address is added
    .word 8
    .balign 4
trampoline_root:
    .long boot_pml4_phys
trampoline_gdt_pointer:
    .word 23
    .long boot_gdt                          // of boot.s, at its physical address
    .globl trampoline_end
trampoline_end:

    .section .text.ap, "ax", @progbits
ap_high:
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movq ap_root(%rip), %rax
    movq %rax, %cr3
    movq ap_stack(%rip), %rsp
    movl ap_number(%rip), %edi
    xorl %ebp, %ebp
    callq ap_main
    ud2

    // What the boot CPU says to the one that it starts.
    .section .bss.ap, "aw", @nobits
    .balign 8
    .globl ap_root
ap_root:
    .skip 8
    .globl ap_stack
ap_stack:
    .skip 8
    .globl ap_number
ap_number:
    .skip 8
