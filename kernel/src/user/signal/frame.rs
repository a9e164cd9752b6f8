//! What a handler finds on its stack: the registers to go back to, and what the signal tells.
//!
//! Layout: `struct rt_sigframe` of x86-64, as Linux has it (arch/x86/include/asm/sigframe.h), for a
//! C library reads and changes it.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::{Action, Info, Set};
use crate::arch::fpu::{self, FpuBytes};
use crate::arch::trap::{Registers, UserContext};
use crate::arch::uaccess;
use crate::linux::EFAULT;
use crate::task;

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// Words of `struct sigcontext` that are general registers.
const GENERAL: usize = 18;
/// `uc_flags`: the registers of vectors are saved in XSAVE's form, and SS is.
const FLAGS: u64 = 1 | 2 | 4;

/// Where things are, in words from the frame's start.
mod at {
    /// `uc.uc_flags`.
    pub(super) const FLAGS: usize = 1;
    /// `uc.uc_stack`: where, flags, how long.
    pub(super) const STACK: usize = 3;
    /// `uc.uc_mcontext`.
    pub(super) const REGISTERS: usize = 6;
    /// `cs gs fs ss`.
    pub(super) const SEGMENTS: usize = REGISTERS + 18;
    /// `err`.
    pub(super) const ERROR: usize = REGISTERS + 19;
    /// `trapno`.
    pub(super) const TRAP: usize = REGISTERS + 20;
    /// `oldmask`.
    pub(super) const OLD_MASK: usize = REGISTERS + 21;
    /// `cr2`.
    pub(super) const ADDRESS: usize = REGISTERS + 22;
    /// `fpstate`.
    pub(super) const FPU: usize = REGISTERS + 23;
    /// `uc.uc_sigmask`.
    pub(super) const MASK: usize = REGISTERS + 32;
    /// `info`.
    pub(super) const INFO: usize = MASK + 1;
    /// All.
    pub(super) const END: usize = INFO + 16;
}

/// The general registers in the order of `struct sigcontext`.
fn general(it: &Registers) -> [u64; GENERAL] {
    [
        it.r8, it.r9, it.r10, it.r11, it.r12, it.r13, it.r14, it.r15, it.rdi, it.rsi, it.rbp,
        it.rbx, it.rdx, it.rax, it.rcx, it.rsp, it.rip, it.rflags,
    ]
}

/// Puts a frame on the program's stack and has it go on in the handler.
///
/// # Errors
/// `EFAULT`, where there is no stack: nothing has changed but what is on it.
pub(super) fn push(
    context: &mut UserContext,
    action: Action,
    info: Info,
    mask: Set,
) -> Result<(), Errno> {
    let own = &task::current().own;
    let registers = context.registers();
    let (stack, stack_bytes, stack_flags) = own.signals().stack();
    let on_it = own.signals().is_on_stack(registers.rsp);
    let mut sp = registers.rsp.wrapping_sub(RED_ZONE);
    let uses = action.flags & u64::from(abi::SA_ONSTACK) != 0;
    if uses && stack_flags & abi::SS_DISABLE == 0 && !on_it {
        sp = stack.wrapping_add(stack_bytes);
    }
    let fpu = fpu::bytes_of_running();
    let fpu_at = sp.wrapping_sub(fpu.len() as u64) & !63;
    let bytes = (8 * at::END) as u64;
    let frame = (fpu_at.wrapping_sub(bytes) & !15).wrapping_sub(8);
    if on_it && !own.signals().is_on_stack(frame) {
        return Err(EFAULT);
    }

    let mut words = [0; at::END];
    words[0] = action.restorer;
    words[at::FLAGS] = FLAGS;
    let now = if on_it { abi::SS_ONSTACK } else { stack_flags };
    words[at::STACK..at::STACK + 3].copy_from_slice(&[stack, u64::from(now), stack_bytes]);
    words[at::REGISTERS..at::REGISTERS + GENERAL].copy_from_slice(&general(&registers));
    words[at::SEGMENTS] = registers.cs | registers.ss << 48;
    (words[at::ERROR], words[at::TRAP]) = (registers.error, registers.trap);
    words[at::OLD_MASK] = mask.0;
    words[at::ADDRESS] = registers.address;
    words[at::FPU] = fpu_at;
    words[at::MASK] = mask.0;
    words[at::INFO..at::INFO + 6].copy_from_slice(&info_words(info));

    uaccess::copy_to_user(fpu_at, fpu.as_slice())?;
    let mut room = [0; 8 * at::END];
    for (bytes, word) in room.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    uaccess::copy_to_user(frame, &room)?;
    fpu::reset_running();
    context.call(
        action.handler,
        frame,
        [
            u64::from(info.number),
            frame + 8 * at::INFO as u64,
            frame + 8 * at::FLAGS as u64,
        ],
    );
    Ok(())
}

/// The first words of `siginfo_t`.
fn info_words(info: Info) -> [u64; 6] {
    let [a, b, c, d] = info.words;
    [
        u64::from(info.number),
        u64::from(info.code as u32),
        a,
        b,
        c,
        d,
    ]
}

/// Stores a `siginfo_t`.
pub(crate) fn store_info(to: u64, info: Info) -> Result<(), Errno> {
    let mut room = [0; 128];
    for (bytes, word) in room.chunks_exact_mut(8).zip(info_words(info)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    uaccess::copy_to_user(to, &room)
}

/// Loads a `siginfo_t`, as far as it is kept.
pub(crate) fn load_info(from: u64) -> Result<Info, Errno> {
    let mut words = [0; 6];
    for (index, word) in words.iter_mut().enumerate() {
        *word = uaccess::load(from.checked_add(8 * index as u64).ok_or(EFAULT)?)?;
    }
    let [number, code, a, b, c, d] = words;
    Ok(Info {
        number: number as u32,
        code: code as u32 as i32,
        words: [a, b, c, d],
    })
}

/// Goes back to what the handler's frame says, as `rt_sigreturn`: the mask to go back to.
///
/// # Errors
/// `EFAULT`, where the frame is not there.
pub(super) fn pop(context: &mut UserContext) -> Result<Set, Errno> {
    let registers = context.registers();
    // The handler's return took the first word off.
    let frame = registers.rsp.wrapping_sub(8);
    let mut room = [0; 8 * at::END];
    uaccess::copy_from_user(&mut room, frame)?;
    let mut words = [0; at::END];
    for (word, bytes) in words.iter_mut().zip(room.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let fpu_at = words[at::FPU];
    if fpu_at != 0 {
        let mut bytes = FpuBytes::new();
        uaccess::copy_from_user(bytes.as_mut_slice(), fpu_at)?;
        fpu::set_running(&bytes);
    } else {
        fpu::reset_running();
    }
    let general: [u64; GENERAL] = core::array::from_fn(|index| words[at::REGISTERS + index]);
    context.restore(&general);
    let flags = words[at::STACK + 1] as u32 & !abi::SS_ONSTACK;
    if flags & !abi::SS_DISABLE == 0 {
        // What the handler was told, or set there.
        let own = task::current().own.signals();
        own.set_stack(words[at::STACK], words[at::STACK + 2], flags);
    }
    Ok(Set(words[at::MASK]))
}
