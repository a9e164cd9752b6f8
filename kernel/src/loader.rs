//! Loads a static ELF program into an address space: its segments are mappings of its file.

use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::parse::ParseAt;
use elf::segment::ProgramHeader;
use minflt_addr::VirtAddr;
use minflt_mm::{Errno, FileHandle, Force, MapRequest, Mm, Place, Prot, Sharing};

use crate::arch::paging::{PAGE, USER_END};
use crate::linux::{EINVAL, ENOEXEC};
use crate::machine::Kernel;

/// Where programs are put that may be anywhere. Linux: `ELF_ET_DYN_BASE`, without randomization.
const ANYWHERE: u64 = 0x5555_5555_4000;
/// Bytes of a file's header.
const HEADER: usize = 64;
/// Bytes of the header of a segment.
pub(crate) const SEGMENT: usize = 56;
/// The most segments: their headers are to lie in the first page, as linkers have it.
const MOST_SEGMENTS: usize = 64;

/// Why a program cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// Not an ELF file, or a damaged one.
    Malformed,
    /// An ELF file, but not a static x86-64 program.
    Unsupported,
    /// There is no such file, or it is none that may be executed.
    Missing(Errno),
    /// Its memory could not be set up.
    Memory(Errno),
}

impl<E: Into<Errno>> From<E> for LoadError {
    fn from(error: E) -> Self {
        Self::Memory(error.into())
    }
}

impl LoadError {
    /// What execve says.
    pub(crate) const fn errno(self) -> Errno {
        match self {
            Self::Malformed | Self::Unsupported => ENOEXEC,
            Self::Missing(errno) | Self::Memory(errno) => errno,
        }
    }
}

/// Where a program is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    /// Its first instruction.
    pub(crate) entry: u64,
    /// The headers of its segments, how many they are.
    pub(crate) segments: (u64, u64),
}

/// Maps every segment of `file`, whose first bytes are `first`, into `mm`, a new address space.
/// The heap begins behind them.
pub(crate) fn load(
    mm: &Mm<Kernel>,
    file: &FileHandle<'_, Kernel>,
    first: &[u8],
) -> Result<Loaded, LoadError> {
    let (header, tail) = first.split_at_checked(16).ok_or(LoadError::Malformed)?;
    let ident = parse_ident::<LittleEndian>(header).map_err(|_| LoadError::Malformed)?;
    if ident.1 != Class::ELF64 || first.len() < HEADER {
        return Err(LoadError::Malformed);
    }
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| LoadError::Malformed)?;
    let known = header.e_type == ET_EXEC || header.e_type == ET_DYN;
    if !known || header.e_machine != EM_X86_64 {
        return Err(LoadError::Unsupported);
    }
    let count = usize::from(header.e_phnum);
    if count > MOST_SEGMENTS || usize::from(header.e_phentsize) != SEGMENT {
        return Err(LoadError::Malformed);
    }
    let base = if header.e_type == ET_DYN { ANYWHERE } else { 0 };
    let segment = |index: usize| {
        let mut at = usize::try_from(header.e_phoff)
            .ok()
            .and_then(|at| at.checked_add(index * SEGMENT))
            .ok_or(LoadError::Malformed)?;
        ProgramHeader::parse_at(LittleEndian, Class::ELF64, &mut at, first)
            .map_err(|_| LoadError::Malformed)
    };
    let (mut end, mut headers) = (0, 0);
    for index in 0..count {
        let segment = segment(index)?;
        if segment.p_type == PT_INTERP {
            return Err(LoadError::Unsupported);
        }
        if segment.p_type != PT_LOAD || segment.p_memsz == 0 {
            continue;
        }
        let place = if end == 0 {
            Place::FixedNoReplace
        } else {
            // Two segments may share a page, whose second half is the second one's.
            Place::Fixed
        };
        end = end.max(load_segment(mm, file, &segment, base, place)?);
        let ahead = header.e_phoff.checked_sub(segment.p_offset);
        if let Some(ahead) = ahead.filter(|ahead| *ahead < segment.p_filesz) {
            headers = base + segment.p_vaddr + ahead;
        }
    }
    if end == 0 {
        return Err(LoadError::Malformed);
    }
    mm.set_start_brk(VirtAddr(end.next_multiple_of(PAGE)))
        .map_err(|_| LoadError::Memory(Errno::ENOMEM))?;
    Ok(Loaded {
        entry: base.wrapping_add(header.e_entry),
        segments: (headers, count as u64),
    })
}

/// Maps one segment; where it ends.
fn load_segment(
    mm: &Mm<Kernel>,
    file: &FileHandle<'_, Kernel>,
    segment: &ProgramHeader,
    base: u64,
    place: impl Fn(VirtAddr) -> Place,
) -> Result<u64, LoadError> {
    let start = base
        .checked_add(segment.p_vaddr)
        .ok_or(LoadError::Malformed)?;
    let within = start % PAGE;
    let end = start
        .checked_add(segment.p_memsz)
        .filter(|end| *end <= USER_END);
    let end = end.ok_or(LoadError::Malformed)?;
    let in_file = segment.p_filesz;
    if segment.p_offset % PAGE != within || in_file > segment.p_memsz {
        return Err(LoadError::Memory(EINVAL));
    }
    let rights = rights(segment.p_flags);
    let first = start - within;
    let mut anonymous = first;
    if in_file > 0 {
        let request = MapRequest::new(place(VirtAddr(first)), in_file + within, rights);
        mm.mmap_file(&request, file, segment.p_offset - within, Sharing::Private)?;
        anonymous = (start + in_file).next_multiple_of(PAGE);
        let rest = anonymous.min(end) - (start + in_file);
        if rest > 0 {
            let zeros = [0; PAGE as usize];
            mm.remote_write(
                VirtAddr(start + in_file),
                &zeros[..rest as usize],
                Force::Yes,
            )
            .map_err(|_| LoadError::Memory(Errno::ENOMEM))?;
        }
    }
    if anonymous < end {
        mm.mmap(place(VirtAddr(anonymous)), end - anonymous, rights)?;
    }
    Ok(end)
}

fn rights(flags: u32) -> Prot {
    let rights = [
        (PF_R, Prot::READ),
        (PF_W, Prot::READ_WRITE),
        (PF_X, Prot::EXEC),
    ];
    let asked = rights.into_iter().filter(|(flag, _)| flags & flag != 0);
    asked.fold(Prot::NONE, |prot, (_, right)| prot.with(right))
}
