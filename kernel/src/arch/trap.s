// Every way into the kernel from a running program or from the kernel itself, and the way out to a
// program. Intel syntax. The frame's layout is `Frame` in trap.rs.
//
// The kernel enters a program by calling `enter_user`, and the program's next trap or system call
// makes that call return. In between, the stack the CPU switches to (TSS.RSP0) is the program's
// `Frame` itself, so the registers are saved where they are kept:
//
//   kernel stack           gs:[kernel_rsp]     program's Frame
//   ------------           ---------------     ---------------
//   enter_user: push callee-saved  -> saved     pop general registers, IRETQ or SYSRETQ
//                                               ... ring 3 ...
//                                               trap: the CPU and `trap_common` push the frame
//   pop callee-saved, ret  <- loaded            (complete)
//
// A trap in the kernel stays on the kernel's stack, calls `kernel_trap` and returns from it. So does
// an interrupt of the kernel. Every gate turns interrupts off; programs run with them on.

    .macro PUSH_REGISTERS
    push rdi
    push rsi
    push rdx
    push rcx
    push rax
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    .endm

    .macro POP_REGISTERS
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rax
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    .endm

    .section .text.trap, "ax", @progbits

    // One stub per exception and interrupt, 16 bytes each; those without an error code push a zero.
    .balign 16
    .globl trap_stubs
trap_stubs:
    .irp vector, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63
    .balign 16
    .if (\vector == 8) || ((\vector >= 10) && (\vector <= 14)) || (\vector == 17) || (\vector == 21) || (\vector == 29) || (\vector == 30)
    .else
    push 0
    .endif
    push \vector
    .if (\vector == 2) || (\vector == 8) || (\vector == 18)
    jmp trap_fatal
    .else
    jmp trap_common
    .endif
    .endr

    .balign 16
trap_common:
    CLAC
    PUSH_REGISTERS
    test byte ptr [rsp + {frame_cs}], 3
    jz 1f
    swapgs
leave_user:
    mov rsp, gs:[{kernel_rsp}]
    cld
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

    // Non-maskable interrupt, double fault, machine check: these come on stacks of their own, so a
    // program's `Frame` does not hold what was pushed. `kernel_trap` ends the kernel.
    .balign 16
trap_fatal:
    CLAC
    PUSH_REGISTERS
    // From the kernel. The CPU aligned the stack before it pushed, and a frame keeps it aligned.
1:  cld
    mov rdi, rsp
    call kernel_trap
    POP_REGISTERS
    add rsp, 16
    iretq

    // SYSCALL: rcx is the program's rip, r11 its flags, and rsp is still the program's.
    .balign 16
    .globl syscall_entry
syscall_entry:
    swapgs
    mov gs:[{user_rsp}], rsp
    mov rsp, gs:[{rsp0}]
    push {user_ss}
    push qword ptr gs:[{user_rsp}]
    push r11
    push {user_cs}
    push rcx
    push 0
    push {syscall_vector}
    PUSH_REGISTERS
    jmp leave_user

    // enter_user(frame: *mut Frame, by_sysret: u64), called and left with interrupts off
    .balign 16
    .globl enter_user
enter_user:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov gs:[{kernel_rsp}], rsp
    lea rax, [rdi + {frame_size}]
    mov gs:[{rsp0}], rax
    mov rsp, rdi
    test esi, esi
    jnz 2f
    POP_REGISTERS
    add rsp, 16
    swapgs
    iretq
2:  POP_REGISTERS
    mov rsp, [rsp + {rsp_after_registers}]
    swapgs
    sysretq

    .purgem SITE
    .purgem STAC
    .purgem CLAC
