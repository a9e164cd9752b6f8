// The instructions of the kernel that may touch a program's memory. Intel syntax. If a page fault at
// one of them, NAME_access, cannot be resolved, `kernel_trap` continues at NAME_failed.

    .section .text.uaccess, "ax", @progbits

// user_copy(to, from, len) -> bytes not copied; rcx tells how many at a fault, too.
    .balign 16
    .globl user_copy
user_copy:
    mov rcx, rdx
    .globl user_copy_access
user_copy_access:
    rep movsb
    .globl user_copy_failed
user_copy_failed:
    mov rax, rcx
    ret

// user_load(from) -> the word in rax, 0 in rdx; 1 in rdx if it failed.
    .balign 16
    .globl user_load
user_load:
    xor edx, edx
    .globl user_load_access
user_load_access:
    mov rax, [rdi]
    ret
    .globl user_load_failed
user_load_failed:
    mov edx, 1
    ret

// user_store(to, value) -> 0; 1 if it failed.
    .balign 16
    .globl user_store
user_store:
    xor eax, eax
    .globl user_store_access
user_store_access:
    mov [rdi], rsi
    ret
    .globl user_store_failed
user_store_failed:
    mov eax, 1
    ret
