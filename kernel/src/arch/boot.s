// From the PVH entry (32-bit protected mode, paging off, physical addresses) to `kmain` in long
// mode. AT&T syntax. `%ebx` holds the physical address of the start info.
//
// One PDPT serves three slots of the first PML4, and its one PD maps the first GiB by 2 MiB pages:
//
//   PML4[0]   -> PDPT[0]    physical = virtual, for the instructions around the switch
//   PML4[256] -> PDPT[0]    the direct map, 0xffff800000000000
//   PML4[511] -> PDPT[510]  the kernel's image, 0xffffffff80000000
//
// `paging.rs` replaces them once the memory map is known.

    // XEN_ELFNOTE_PHYS32_ENTRY: where a PVH loader jumps to.
    .section .note.pvh, "a", @note
    .balign 4
    .long 4                     // length of the name
    .long 8                     // length of the address
    .long 18
    .asciz "Xen"
    .quad pvh_start

    .section .boot, "ax", @progbits
    .code32
    .globl pvh_start
pvh_start:
    cli
    cld

    movl $boot_pd_phys, %edi
    movl $0x83, %eax            // present, writable, 2 MiB
    movl $512, %ecx
1:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    decl %ecx
    jnz 1b

    movl $boot_pd_phys + 3, boot_pdpt_phys
    movl $boot_pd_phys + 3, boot_pdpt_phys + 510 * 8
    movl $boot_pdpt_phys + 3, boot_pml4_phys
    movl $boot_pdpt_phys + 3, boot_pml4_phys + 256 * 8
    movl $boot_pdpt_phys + 3, boot_pml4_phys + 511 * 8

    movl $boot_pml4_phys, %eax
    movl %eax, %cr3

    movl %cr4, %eax
    orl $(1 << 5), %eax         // PAE
    movl %eax, %cr4

    movl $0xc0000080, %ecx      // EFER
    rdmsr
    orl $(1 << 0 | 1 << 8 | 1 << 11), %eax  // SCE, LME, NXE
    wrmsr

    movl %cr0, %eax
    orl $(1 << 31 | 1 << 16), %eax          // PG, WP
    movl %eax, %cr0

    lgdtl boot_gdt_pointer
    ljmpl $8, $low64

    .code64
low64:
    movabsq $high64, %rax
    jmpq *%rax

    .balign 8
    .globl boot_gdt
boot_gdt:
    .quad 0
    .quad 0x00209a0000000000    // 64-bit code, ring 0
    .quad 0x0000920000000000    // data, ring 0
boot_gdt_pointer:
    .word 23
    .long boot_gdt

    .section .text.boot, "ax", @progbits
high64:
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movabsq $stack_top, %rsp
    xorl %ebp, %ebp
    movl %ebx, %edi
    callq kmain
    ud2

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .globl boot_pml4
boot_pml4:
    .skip 4096
    .globl boot_pdpt
boot_pdpt:
    .skip 4096
    .globl boot_pd
boot_pd:
    .skip 4096
