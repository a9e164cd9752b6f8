//! Loads and stores that may raise a signal, which then is their result.
//!
//! Each access is one instruction at a known address. The handler of `SIGSEGV` and `SIGBUS` looks
//! whether the signal came from there; if so it notes the code and lets the thread go on behind
//! the access. Any other signal ends the process as it would have without us.

use core::sync::atomic::{AtomicI32, Ordering};

core::arch::global_asm!(
    ".globl minflt_differential_load",
    ".globl minflt_differential_store",
    ".globl minflt_differential_caught",
    "minflt_differential_load:",
    "mov rax, [rdi]",
    "mov [rsi], rax",
    "xor eax, eax",
    "ret",
    "minflt_differential_store:",
    "mov [rdi], rsi",
    "xor eax, eax",
    "ret",
    "minflt_differential_caught:",
    "mov eax, 1",
    "ret",
);

unsafe extern "C" {
    /// # Safety
    /// 1. `into` may be written. 2. The handler is in place, or `at` may be read.
    fn minflt_differential_load(at: u64, into: *mut u64) -> u32;
    /// # Safety
    /// 1. Nobody relies on what `at` holds. 2. The handler is in place, or `at` may be written.
    fn minflt_differential_store(at: u64, value: u64) -> u32;
    /// Never called: where the handler goes on.
    fn minflt_differential_caught();
}

/// What the last signal was: its code, and its number times 256 where it is not `SIGSEGV`.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

/// Loads a word of the window.
pub(super) fn load(at: u64) -> Result<u64, i32> {
    let mut value = 0;
    // SAFETY: 1. The word is ours. 2. `catch` was called.
    let caught = unsafe { minflt_differential_load(at, &raw mut value) };
    if caught == 0 {
        Ok(value)
    } else {
        Err(CAUGHT.load(Ordering::Relaxed))
    }
}

/// Stores a word of the window.
pub(super) fn store(at: u64, value: u64) -> Result<(), i32> {
    // SAFETY: 1. By the contract of `sys`. 2. `catch` was called.
    let caught = unsafe { minflt_differential_store(at, value) };
    if caught == 0 {
        Ok(())
    } else {
        Err(CAUGHT.load(Ordering::Relaxed))
    }
}

/// Puts the handler in place.
pub(super) fn catch() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        install(signal, handler as *const () as usize);
    }
}

fn install(signal: i32, handler: usize) {
    // SAFETY: 1. Zeroes are values of the structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: 1. The structure is ours. 2. The handler is of the form that the flags say.
    let _set = unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: 1. The kernel gives a handler of this form its context, which is the handler's.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    let ours = [
        minflt_differential_load as *const () as i64,
        minflt_differential_store as *const () as i64,
    ];
    if !ours.contains(at) {
        install(signal, libc::SIG_DFL);
        return;
    }
    *at = minflt_differential_caught as *const () as i64;
    // SAFETY: 1. As for the context.
    let code = unsafe { (*info).si_code };
    let other = if signal == libc::SIGSEGV {
        0
    } else {
        signal << 8
    };
    CAUGHT.store(other | code, Ordering::Relaxed);
}
