// Changes from the stack of one task to that of another. Intel syntax.

    .section .text.switch, "ax", @progbits

// switch_stacks(save: *mut u64, to: u64): what a function must keep goes on the stack that is left,
// whose pointer goes to `save`, and is taken from the one that is entered.
    .balign 16
    .globl switch_stacks
switch_stacks:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

// Where the first switch to a task returns to.
    .balign 16
    .globl first_step
first_step:
    xor ebp, ebp
    call task_main
    ud2
