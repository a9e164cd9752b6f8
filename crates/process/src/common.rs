//! What the workers of a process find when they start.

use crate::file::common_file;
use crate::{errno, own};
use minflt_addr::VirtAddr;
use minflt_mm::{FileHandle, Growth, MapRequest, Mm, MmHandle, Place, Sharing, System, Thread};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Phase;
use minflt_workload::{HugePages, Inherited, Pages, Plan, Populate, Prot, Stop, TargetError};

/// What Linux gives a process's stack at first: 128 KiB and a page (fs/exec.c `setup_arg_pages`).
const STACK_BYTES: u64 = 132 << 10;

/// What a plan has ready for its workers. It is made before anything is counted, and dropped once
/// all workers have ended.
#[derive(Debug)]
pub struct Common<'s, M: Mmu> {
    system: &'s System<M>,
    /// The file that all can map.
    pub(crate) file: Option<FileHandle<'s, M>>,
    /// That of huge pages.
    pub(crate) huge: Option<FileHandle<'s, M>>,
    /// Where the memory lies that all inherit.
    inherited: Option<VirtAddr>,
    /// The process that mapped it, if it is not theirs.
    first: Option<MmHandle<'s, M>>,
    /// How many huge pages there were before.
    pool: u64,
}

impl<'s, M: Mmu> Common<'s, M> {
    /// Makes it.
    ///
    /// # Context
    /// Sleeps.
    ///
    /// # Errors
    /// When the system has no memory for it, or cannot do it.
    pub fn new(system: &'s System<M>, plan: &Plan) -> Result<Self, TargetError> {
        let file = plan.file.as_ref().map(|wanted| common_file(system, wanted));
        let pool = system.huge_pool().total;
        let huge = plan.huge.as_ref().map(|wanted| huge_pages(system, wanted));
        let mut common = Self {
            system,
            file: file.transpose()?,
            huge: huge.transpose()?.flatten(),
            inherited: None,
            first: None,
            pool,
        };
        if let Some(wanted) = &plan.inherited {
            let first = common.fresh()?;
            let at = map(first.thread(), wanted).map_err(|why| no_memory(wanted.bytes, why))?;
            common.inherited = Some(at);
            common.first = Some(first);
        }
        Ok(common)
    }

    /// The address space of the one process that all workers are threads of.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn shared_space(&mut self) -> Result<MmHandle<'s, M>, TargetError> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.fresh(),
        }
    }

    /// The address space of a worker that is a process.
    ///
    /// # Context
    /// Sleeps.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn own_space(&self) -> Result<MmHandle<'s, M>, TargetError> {
        let Some(first) = &self.first else {
            return self.fresh();
        };
        M::phase(Phase::Call("fork"));
        let forked = first.fork();
        forked.map_err(|why| no_memory(0, errno(why)))
    }

    /// An address space with what every process has when it starts: a stack, above which nothing
    /// is mapped and below which a gap stays free. It is not touched.
    fn fresh(&self) -> Result<MmHandle<'s, M>, TargetError> {
        let none = |_| TargetError::System("no memory for an address space".into());
        let space = self.system.new_mm().map_err(none)?;
        let bytes = STACK_BYTES.next_multiple_of(M::Paging::page());
        let at = VirtAddr(Mm::<M>::user_range().end().0 - bytes);
        let stack = MapRequest {
            growth: Growth::Down,
            ..MapRequest::new(Place::FixedNoReplace(at), bytes, own(Prot::ReadWrite))
        };
        let mapped = space.thread().mmap(&stack).map_err(errno);
        mapped.map_err(|why| TargetError::System(format!("no stack: {why}")))?;
        Ok(space)
    }

    /// See [`minflt_workload::Worker::inherited`].
    ///
    /// # Errors
    /// ENODEV where there is none.
    pub fn inherited(&self) -> Result<VirtAddr, Stop> {
        const ENODEV: i32 = 19;
        self.inherited.ok_or(Stop::Errno(ENODEV))
    }
}

/// Makes the pool as large as is wanted, and the file.
fn huge_pages<'s, M: Mmu>(
    system: &'s System<M>,
    wanted: &HugePages,
) -> Result<Option<FileHandle<'s, M>>, TargetError> {
    let before = system.huge_pool().total;
    let has = system.resize_huge_pool(wanted.count);
    if has < wanted.count {
        system.resize_huge_pool(before);
        return Err(TargetError::Unsupported(format!(
            "{} huge pages are needed, and {has} can be had of this memory; give more --ram",
            wanted.count
        )));
    }
    let file = wanted.file_bytes.map(|bytes| system.new_huge_file(bytes));
    file.transpose()
        .map_err(|why| TargetError::System(format!("no file of huge pages: {}", errno(why))))
}

impl<M: Mmu> Drop for Common<'_, M> {
    /// The huge pages go back to where they came from.
    fn drop(&mut self) {
        (self.huge, self.first) = (None, None);
        self.system.resize_huge_pool(self.pool);
    }
}

/// What is asked for to map `bytes` bytes for loads and stores.
pub(crate) fn request(bytes: u64, populate: Populate) -> MapRequest {
    let populate = match populate {
        Populate::OnTouch => minflt_mm::Populate::OnTouch,
        Populate::Now => minflt_mm::Populate::Now,
    };
    MapRequest {
        populate,
        ..MapRequest::new(Place::Any, bytes, own(Prot::ReadWrite))
    }
}

fn map<M: Mmu>(thread: Thread<'_, M>, wanted: &Inherited) -> Result<VirtAddr, Stop> {
    let request = request(wanted.bytes, wanted.populate);
    match wanted.pages {
        Pages::Base => thread.mmap(&request).map_err(errno),
        Pages::Huge => {
            let mapped = thread.mm().mmap_huge(&request, Sharing::Private);
            mapped.map_err(errno)
        }
    }
}

fn no_memory(bytes: u64, why: Stop) -> TargetError {
    TargetError::System(format!("first process, {bytes} bytes to inherit: {why}"))
}

/// Why a system has no huge pages; `None` where it has.
#[must_use]
pub fn no_huge_pages<M: Mmu>(system: &System<M>) -> Option<&'static str> {
    let none = system.huge_page_bytes().is_none();
    none.then_some("the machine's format of page tables has no huge pages")
}
