// The instructions of the kernel that may touch a program's memory. Intel syntax. If a page fault at
// one of them, NAME_access, cannot be resolved, `kernel_trap` continues at NAME_failed.
//
// With SMAP the kernel reaches a program's memory only between STAC and CLAC (smap.s).

    .section .text.uaccess, "ax", @progbits

// user_copy(to, from, len) -> bytes not copied; rcx tells how many at a fault, too.
    .balign 16
    .globl user_copy
user_copy:
    mov rcx, rdx
    STAC
    .globl user_copy_access
user_copy_access:
    rep movsb
    .globl user_copy_failed
user_copy_failed:
    CLAC
    mov rax, rcx
    ret

// user_load(from) -> the word in rax, 0 in rdx; 1 in rdx if it failed.
    .balign 16
    .globl user_load
user_load:
    xor edx, edx
    STAC
    .globl user_load_access
user_load_access:
    mov rax, [rdi]
    CLAC
    ret
    .globl user_load_failed
user_load_failed:
    CLAC
    mov edx, 1
    ret

// user_store(to, value) -> 0; 1 if it failed.
    .balign 16
    .globl user_store
user_store:
    xor eax, eax
    STAC
    .globl user_store_access
user_store_access:
    mov [rdi], rsi
    CLAC
    ret
    .globl user_store_failed
user_store_failed:
    CLAC
    mov eax, 1
    ret

// user_load_u32(from) -> the word in rax, 0 in rdx; 1 in rdx if it failed.
    .balign 16
    .globl user_load_u32
user_load_u32:
    xor edx, edx
    STAC
    .globl user_load_u32_access
user_load_u32_access:
    mov eax, [rdi]
    CLAC
    ret
    .globl user_load_u32_failed
user_load_u32_failed:
    CLAC
    mov edx, 1
    ret

// user_store_u32(to, value) -> 0; 1 if it failed.
    .balign 16
    .globl user_store_u32
user_store_u32:
    xor eax, eax
    STAC
    .globl user_store_u32_access
user_store_u32_access:
    mov [rdi], esi
    CLAC
    ret
    .globl user_store_u32_failed
user_store_u32_failed:
    CLAC
    mov eax, 1
    ret

// user_exchange_u32(at, old, new) -> 0 if it was `old` in rax, 1 if not; 1 in rdx if it failed.
    .balign 16
    .globl user_exchange_u32
user_exchange_u32:
    mov ecx, edx
    xor edx, edx
    mov eax, esi
    STAC
    .globl user_exchange_u32_access
user_exchange_u32_access:
    lock cmpxchg [rdi], ecx
    CLAC
    setne al
    movzx eax, al
    ret
    .globl user_exchange_u32_failed
user_exchange_u32_failed:
    CLAC
    mov edx, 1
    ret

    .purgem SITE
    .purgem STAC
    .purgem CLAC
