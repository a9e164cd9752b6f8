//! Loads a static ELF program into the active address space.

use elf::ElfBytes;
use elf::abi::{EM_X86_64, ET_EXEC, PF_R, PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;

use crate::arch::paging::PAGE;
use crate::arch::uaccess;
use crate::bringup;
use crate::linux::{Errno, Prot};

/// Why a program cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// Not an ELF file, or a damaged one.
    Malformed,
    /// An ELF file, but not a static x86-64 program.
    Unsupported,
    /// Its memory could not be set up.
    Memory(Errno),
}

impl From<Errno> for LoadError {
    fn from(errno: Errno) -> Self {
        Self::Memory(errno)
    }
}

/// Maps and fills every segment of `image`; returns the entry point.
pub(crate) fn load(image: &[u8]) -> Result<u64, LoadError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(image).map_err(|_| LoadError::Malformed)?;
    if file.ehdr.e_type != ET_EXEC || file.ehdr.e_machine != EM_X86_64 {
        return Err(LoadError::Unsupported);
    }
    for segment in file.segments().ok_or(LoadError::Malformed)?.iter() {
        if segment.p_type == PT_LOAD && segment.p_memsz > 0 {
            load_segment(&file, &segment)?;
        }
    }
    Ok(file.ehdr.e_entry)
}

/// Maps one segment writable, copies its bytes by faulting them in, and then takes back the rights
/// it does not ask for.
fn load_segment(
    file: &ElfBytes<'_, LittleEndian>,
    segment: &ProgramHeader,
) -> Result<(), LoadError> {
    let bytes = file
        .segment_data(segment)
        .map_err(|_| LoadError::Malformed)?;
    let within = segment.p_vaddr % PAGE;
    let start = segment.p_vaddr - within;
    let len = segment
        .p_memsz
        .checked_add(within)
        .ok_or(LoadError::Malformed)?;
    if bytes.len() as u64 > segment.p_memsz {
        return Err(LoadError::Malformed);
    }
    bringup::map(Some(start), len, Prot::READ.and(Prot::WRITE))?;
    uaccess::copy_to_user(segment.p_vaddr, bytes)?;
    bringup::protect(start, len, rights(segment.p_flags))?;
    Ok(())
}

fn rights(flags: u32) -> Prot {
    let mut prot = Prot::NONE;
    for (flag, right) in [(PF_R, Prot::READ), (PF_W, Prot::WRITE), (PF_X, Prot::EXEC)] {
        if flags & flag != 0 {
            prot = prot.and(right);
        }
    }
    prot
}
