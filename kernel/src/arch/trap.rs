//! Traps: a program's registers, entering a program, and traps of the kernel itself.

use core::arch::global_asm;
use core::mem::offset_of;

use minflt_pgtable::Access;
use x86_64::instructions::interrupts;
use x86_64::registers::control::Cr2;

use super::paging::USER_END;
use super::{gdt, interrupt, protect, uaccess};
use crate::fault;
use crate::sched;
use crate::task;

/// The vector number that stands for SYSCALL in a frame; exceptions are below 32.
const SYSCALL: u64 = 256;
const PAGE_FAULT: u64 = 14;
const GENERAL_PROTECTION: u64 = 13;

/// The flag that lets interrupts in.
const INTERRUPTS_ON: u64 = 1 << 9;
/// The flag that STAC sets, which lets the kernel reach programs' memory under SMAP.
const MAY_REACH_PROGRAMS: u64 = 1 << 18;
/// The flags set when a program starts: the bit that is always one, and interrupts.
const START_FLAGS: u64 = 1 << 1 | INTERRUPTS_ON;
/// The flags that a program may set by returning from a handler: CF PF AF ZF SF TF DF OF RF AC.
/// Linux: `FIX_EFLAGS`.
const OF_PROGRAMS: u64 = 0x5_0dd5;
/// The flags that a handler begins without: TF DF RF.
const NOT_IN_HANDLERS: u64 = 1 << 8 | 1 << 10 | 1 << 16;
/// A vector that no trap has.
const NO_TRAP: u64 = 257;

global_asm!(
    include_str!("smap.s"),
    include_str!("trap.s"),
    frame_cs = const offset_of!(Frame, cs),
    frame_size = const size_of::<Frame>(),
    rsp_after_registers = const offset_of!(Frame, rsp) - offset_of!(Frame, vector),
    kernel_rsp = const gdt::KERNEL_RSP,
    user_rsp = const gdt::USER_RSP,
    rsp0 = const gdt::RSP0,
    user_ss = const gdt::USER_DATA.0,
    user_cs = const gdt::USER_CODE.0,
    syscall_vector = const SYSCALL,
);

unsafe extern "C" {
    fn enter_user(frame: *mut Frame, by_sysret: u64);
}

/// Registers at a trap, in the order `trap.s` and the CPU push them (the last one first).
#[repr(C, align(16))]
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbp: u64,
    rbx: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rax: u64,
    rcx: u64,
    rdx: u64,
    rsi: u64,
    rdi: u64,
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

/// Why a program stopped running.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trap {
    /// A system call with its number and arguments; the result goes to [`UserContext::set_result`].
    Syscall(u64, [u64; 6]),
    /// A page fault at an address.
    PageFault(u64, Access),
    /// Any other exception, by its vector.
    Exception(u64),
    /// An interrupt that was served, maybe just before it ran: the program knows nothing of it.
    Interrupt,
}

/// The registers of a program.
///
/// # Invariants
/// `cs` and `ss` are the user segments, and `rflags` has interrupts on and no I/O privilege, so
/// that a program cannot turn them off: only the constructor and the CPU, leaving ring 3, write
/// them.
#[derive(Clone, Debug)]
pub(crate) struct UserContext {
    frame: Frame,
    /// Where the last page fault was.
    address: u64,
}

/// The registers of a program, and what its last exception was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) r8: u64,
    pub(crate) r9: u64,
    pub(crate) r10: u64,
    pub(crate) r11: u64,
    pub(crate) r12: u64,
    pub(crate) r13: u64,
    pub(crate) r14: u64,
    pub(crate) r15: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rbp: u64,
    pub(crate) rbx: u64,
    pub(crate) rdx: u64,
    pub(crate) rax: u64,
    pub(crate) rcx: u64,
    pub(crate) rsp: u64,
    pub(crate) rip: u64,
    pub(crate) rflags: u64,
    pub(crate) cs: u64,
    pub(crate) ss: u64,
    /// The error code of the last exception, its vector, and where it was, if it was a page fault.
    pub(crate) error: u64,
    pub(crate) trap: u64,
    pub(crate) address: u64,
}

impl UserContext {
    /// A program about to start at `entry` with its stack pointer at `stack`.
    pub(crate) fn new(entry: u64, stack: u64) -> Self {
        let frame = Frame {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            vector: 0,
            error: 0,
            rip: entry,
            cs: u64::from(gdt::USER_CODE.0),
            rflags: START_FLAGS,
            rsp: stack,
            ss: u64::from(gdt::USER_DATA.0),
        };
        // INVARIANT: the user segments, and flags with interrupts and without I/O privilege.
        Self { frame, address: 0 }
    }

    /// Runs the program, in the address space that is active, until it stops. Interrupts are on
    /// before and after.
    pub(crate) fn run(&mut self) -> Trap {
        self.enter(|| ())
    }

    /// The same with an interrupt on its way, which the CPU takes in ring 3: before the program's
    /// next instruction, or soon after.
    pub(crate) fn run_interrupted(&mut self) -> Trap {
        self.enter(|| interrupt::send_call(task::current().cpu()))
    }

    /// Runs the program; `before` is called with interrupts off.
    fn enter(&mut self, before: impl FnOnce()) -> Trap {
        // IRETQ to an address that is not canonical faults in ring 0: a program's entry may be one,
        // and some CPUs let a program jump there.
        if self.frame.rip >> 47 != 0 {
            return Trap::Exception(GENERAL_PROTECTION);
        }
        let by_sysret = u64::from(self.can_sysret());
        let frame = &raw mut self.frame;
        // Between here and ring 3 GS and the stack do not belong together.
        interrupts::disable();
        if sched::turn_is_over() {
            interrupts::enable();
            return Trap::Interrupt;
        }
        before();
        // SAFETY: (1) by the type invariant the CPU goes to ring 3, where it reaches only memory
        // marked for programs; (2) the frame outlives the call, which returns by the next trap.
        unsafe { enter_user(frame, by_sysret) };
        let trap = self.trap();
        interrupts::enable();
        trap
    }

    /// Why the program stopped. Interrupts are off since it did: another fault would change the
    /// address of this one.
    fn trap(&mut self) -> Trap {
        let Frame {
            vector,
            error,
            rax,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..
        } = self.frame;
        match vector {
            SYSCALL => Trap::Syscall(rax, [rdi, rsi, rdx, r10, r8, r9]),
            PAGE_FAULT => {
                self.address = Cr2::read_raw();
                Trap::PageFault(self.address, fault::access(error))
            }
            _ if interrupt::is_interrupt(vector) => {
                interrupt::serve(vector);
                Trap::Interrupt
            }
            _ => Trap::Exception(vector),
        }
    }

    /// Sets what the system call returns.
    pub(crate) fn set_result(&mut self, value: u64) {
        self.frame.rax = value;
    }

    /// The call `number`, whose instruction has `bytes` bytes, is made again.
    pub(crate) fn repeat_call(&mut self, number: u64, bytes: u64) {
        self.frame.rax = number;
        self.frame.rip = self.frame.rip.wrapping_sub(bytes);
    }

    /// All registers, as the handler of a signal finds them.
    pub(crate) fn registers(&self) -> Registers {
        let Frame {
            r15,
            r14,
            r13,
            r12,
            rbp,
            rbx,
            r11,
            r10,
            r9,
            r8,
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
            vector,
            error,
            rip,
            cs,
            rflags,
            rsp,
            ss,
        } = self.frame;
        let is_exception = vector < 32;
        Registers {
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rdi,
            rsi,
            rbp,
            rbx,
            rdx,
            rax,
            rcx,
            rsp,
            rip,
            rflags,
            cs,
            ss,
            error: if is_exception { error } else { 0 },
            trap: if is_exception { vector } else { 0 },
            address: self.address,
        }
    }

    /// The program goes on at `entry` with these arguments and this stack pointer.
    pub(crate) fn call(&mut self, entry: u64, stack: u64, arguments: [u64; 3]) {
        let [rdi, rsi, rdx] = arguments;
        (self.frame.rdi, self.frame.rsi, self.frame.rdx) = (rdi, rsi, rdx);
        self.frame.rax = 0;
        (self.frame.rip, self.frame.rsp) = (entry, stack);
        self.frame.rflags &= !NOT_IN_HANDLERS;
        self.frame.vector = NO_TRAP;
    }

    /// The program goes on with these registers, in the order of `struct sigcontext`.
    pub(crate) fn restore(&mut self, general: &[u64; 18]) {
        let it = &mut self.frame;
        [
            it.r8,
            it.r9,
            it.r10,
            it.r11,
            it.r12,
            it.r13,
            it.r14,
            it.r15,
            it.rdi,
            it.rsi,
            it.rbp,
            it.rbx,
            it.rdx,
            it.rax,
            it.rcx,
            it.rsp,
            it.rip,
            _,
        ] = *general;
        // INVARIANT: of the flags only those are the program's that give it no power.
        it.rflags = START_FLAGS | general[17] & OF_PROGRAMS;
        // Whatever they are, IRETQ restores them all.
        it.vector = NO_TRAP;
    }

    /// Sets the stack pointer.
    pub(crate) fn set_stack(&mut self, stack: u64) {
        self.frame.rsp = stack;
    }

    /// The address of the next instruction.
    pub(crate) fn rip(&self) -> u64 {
        self.frame.rip
    }

    /// Whether SYSRET restores every register: it takes rip from rcx and the flags from r11.
    ///
    /// A rip outside the user half is left to IRETQ: on Intel, SYSRET with a rip that is not
    /// canonical faults in ring 0, on the program's stack.
    fn can_sysret(&self) -> bool {
        let Frame {
            vector,
            rip,
            rcx,
            rflags,
            r11,
            ..
        } = self.frame;
        vector == SYSCALL && rip == rcx && rflags == r11 && rip < USER_END
    }
}

/// A trap in the kernel: an interrupt, or a page fault of an access to a program. No other
/// is allowed.
///
/// A non-maskable interrupt, a double fault and a machine check come here from anywhere, and end
/// the kernel. For them this must work without GS: it may still be the program's.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(frame: &mut Frame) {
    if interrupt::is_interrupt(frame.vector) {
        interrupt::serve(frame.vector);
        return;
    }
    let addr = Cr2::read_raw();
    let give_up = uaccess::give_up_address(frame.rip)
        .filter(|_| frame.vector == PAGE_FAULT && addr < USER_END);
    let Some(give_up) = give_up else {
        panic!("trap in the kernel, cr2 {addr:#x}: {frame:#x?}");
    };
    let Some(space) = task::current().space() else {
        panic!("an access to a program, and there is none: {addr:#x}");
    };
    let access = fault::access(frame.error);
    if protect::has_smap() && frame.rflags & MAY_REACH_PROGRAMS == 0 {
        panic!("an access to a program without leave: {frame:#x?}");
    }
    // A fault may sleep, and wait for other CPUs: with interrupts off the access fails instead.
    if frame.rflags & INTERRUPTS_ON == 0 {
        frame.rip = give_up;
        return;
    }
    interrupts::enable();
    let resolved = space.fault(addr, access);
    interrupts::disable();
    if resolved.is_err() {
        frame.rip = give_up;
    }
}
