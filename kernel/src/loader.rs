//! Loads a static ELF program into the active address space.

use elf::ElfBytes;
use elf::abi::{EM_X86_64, ET_EXEC, PF_R, PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use minflt_addr::VirtAddr;
use minflt_mm::{Errno, Place, Prot};

use crate::arch::paging::PAGE;
use crate::arch::uaccess;
use crate::space::Space;

/// Why a program cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// Not an ELF file, or a damaged one.
    Malformed,
    /// An ELF file, but not a static x86-64 program, or one with too many parts.
    Unsupported,
    /// Its memory could not be set up.
    Memory(Errno),
}

impl<E: Into<Errno>> From<E> for LoadError {
    fn from(error: E) -> Self {
        Self::Memory(error.into())
    }
}

/// Maps and fills every segment of `image`; returns the entry point.
pub(crate) fn load(space: &Space<'_>, image: &[u8]) -> Result<u64, LoadError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(image).map_err(|_| LoadError::Malformed)?;
    if file.ehdr.e_type != ET_EXEC || file.ehdr.e_machine != EM_X86_64 {
        return Err(LoadError::Unsupported);
    }
    for segment in file.segments().ok_or(LoadError::Malformed)?.iter() {
        if segment.p_type == PT_LOAD && segment.p_memsz > 0 {
            load_segment(space, &file, &segment)?;
        }
    }
    Ok(file.ehdr.e_entry)
}

/// Maps one segment writable, copies its bytes by faulting them in, and then takes back the rights
/// it does not ask for.
fn load_segment(
    space: &Space<'_>,
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
    // Segments that share a page are not supported: the second one would replace the first.
    let place = Place::FixedNoReplace(VirtAddr(start));
    space.mm().mmap(place, len, Prot::READ_WRITE)?;
    uaccess::copy_to_user(segment.p_vaddr, bytes)?;
    space
        .mm()
        .mprotect(VirtAddr(start), len, rights(segment.p_flags))?;
    Ok(())
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
