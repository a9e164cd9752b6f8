//! What a program may do to its kernel that is not meant to make sense: calls of any number with
//! any arguments, accesses to any address, instructions that are not for programs.

use core::arch::{asm, naked_asm};

use crate::sys;

/// What is done without regard to the program's own objects.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

/// What a new process or thread does, which has registers only: a call, and its end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Then {
    /// A call's number.
    pub number: u64,
    /// Its first three arguments; the others are zero.
    pub args: [u64; 3],
    /// The number of the call that ends it.
    pub end: u64,
}

/// Instructions that programs may not execute, or that change how the CPU runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// `ud2`.
    Undefined,
    /// `int3`.
    Breakpoint,
    /// Division by zero.
    Divide,
    /// `hlt`.
    Halt,
    /// `cli`.
    InterruptsOff,
    /// `int` with the vector of a device.
    Vector,
    /// A load of CR3.
    Root,
    /// An access to an address that is not canonical.
    NotCanonical,
    /// A jump to one.
    JumpNotCanonical,
    /// A call to the kernel's half.
    CallKernel,
    /// The CPU stops after each instruction.
    SingleStep,
    /// The flags that a task switch by hardware, and checks of alignment, go by; then a call.
    Flags,
    /// String instructions run backwards; then a call.
    Backwards,
    /// No stack at all; then a call.
    NoStack,
    /// The same, and no call.
    PushNowhere,
}

impl Odd {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Undefined,
        Self::Breakpoint,
        Self::Divide,
        Self::Halt,
        Self::InterruptsOff,
        Self::Vector,
        Self::Root,
        Self::NotCanonical,
        Self::JumpNotCanonical,
        Self::CallKernel,
        Self::SingleStep,
        Self::Flags,
        Self::Backwards,
        Self::NoStack,
        Self::PushNowhere,
    ];
}

impl Raw {
    /// One system call; what the kernel returns.
    ///
    /// # Safety
    /// 1. What the call does to the program's memory breaks no object, or the program may fail in
    ///    any way.
    pub unsafe fn call(number: u64, args: [u64; 6]) -> u64 {
        // SAFETY: (1) the caller's promise.
        unsafe { sys::raw(number, args) }
    }

    /// One of the calls that return twice, in the caller; who is new does `then`, and uses no
    /// memory, so that it may share the caller's, and have any stack.
    ///
    /// # Safety
    /// 1. As of [`Raw::call`], for both calls.
    pub unsafe fn call_twice(number: u64, args: [u64; 6], then: Then) -> u64 {
        // SAFETY: (1) the caller's promise.
        unsafe { call_twice(number, &raw const args, &raw const then) }
    }

    /// Loads the byte at `addr`.
    pub fn load(addr: u64) {
        // SAFETY: (1) a load changes nothing, but may end the program.
        unsafe { asm!("mov {0:l}, byte ptr [{0}]", inout(reg_abcd) addr => _, options(nostack)) };
    }

    /// Stores a byte at `addr`.
    ///
    /// # Safety
    /// 1. No object of the program lives there, or it may fail in any way.
    pub unsafe fn store(addr: u64, byte: u8) {
        // SAFETY: (1) the caller's promise.
        unsafe { asm!("mov byte ptr [{}], {}", in(reg) addr, in(reg_byte) byte, options(nostack)) };
    }

    /// Executes one of these; most of them end the program.
    ///
    /// # Safety
    /// 1. The program may end.
    pub unsafe fn execute(odd: Odd) {
        let code = match odd {
            Odd::Undefined => undefined,
            Odd::Breakpoint => breakpoint,
            Odd::Divide => divide,
            Odd::Halt => halt,
            Odd::InterruptsOff => interrupts_off,
            Odd::Vector => vector,
            Odd::Root => root,
            Odd::NotCanonical => not_canonical,
            Odd::JumpNotCanonical => jump_not_canonical,
            Odd::CallKernel => call_kernel,
            Odd::SingleStep => single_step,
            Odd::Flags => flags,
            Odd::Backwards => backwards,
            Odd::NoStack => no_stack,
            Odd::PushNowhere => push_nowhere,
        };
        // SAFETY: (1) the caller's promise; what returns has restored the stack pointer and flags.
        unsafe { code() };
    }
}

/// Functions of these instructions.
macro_rules! code {
    ($($name:ident: $($line:literal)+;)+) => { $(
        /// # Safety
        /// 1. The program may end.
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!($($line,)+ "ret")
        }
    )+ };
}

code! {
    undefined: "ud2";
    breakpoint: "int3";
    divide: "xor ecx, ecx" "div ecx";
    halt: "hlt";
    interrupts_off: "cli";
    vector: "int 50";
    root: "mov rax, cr3";
    not_canonical: "mov rax, 0x800000000000" "mov rax, [rax]";
    jump_not_canonical: "mov rax, 0x8000000000000000" "jmp rax";
    call_kernel: "mov rax, 0xffffffff80100000" "call rax";
    single_step: "pushfq" "or dword ptr [rsp], 0x100" "popfq";
    flags: "pushfq" "or dword ptr [rsp], 0x44000" "popfq" "mov eax, 39" "syscall"
        "pushfq" "and dword ptr [rsp], 0xfffbbfff" "popfq";
    backwards: "std" "mov eax, 39" "syscall" "cld";
    no_stack: "mov rdx, rsp" "mov rsp, 0x8000000000000000" "mov eax, 39" "syscall" "mov rsp, rdx";
    push_nowhere: "mov rsp, 0x8000000000000000" "push rax";
}

/// [`Raw::call_twice`].
///
/// # Safety
/// 1. As there; both pointers are good.
#[unsafe(naked)]
unsafe extern "C" fn call_twice(number: u64, args: *const [u64; 6], then: *const Then) -> u64 {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "mov rbx, [rdx]",
        "mov r12, [rdx + 8]",
        "mov r13, [rdx + 16]",
        "mov r14, [rdx + 24]",
        "mov rbp, [rdx + 32]",
        "mov rax, rdi",
        "mov r11, rsi",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        "2:",
        "mov rax, rbx",
        "mov rdi, r12",
        "mov rsi, r13",
        "mov rdx, r14",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "syscall",
        "mov rax, rbp",
        "xor edi, edi",
        "syscall",
        "ud2",
    )
}
