// user_copy(to, from, len) -> bytes not copied. Intel syntax.
//
// The one instruction of the kernel that may touch a program's memory. If a page fault there
// cannot be resolved, `kernel_trap` continues at `user_copy_done`, and rcx tells how much is left.

    .section .text.uaccess, "ax", @progbits
    .balign 16
    .globl user_copy
user_copy:
    mov rcx, rdx
    .globl user_copy_access
user_copy_access:
    rep movsb
    .globl user_copy_done
user_copy_done:
    mov rax, rcx
    ret
