//! A page whose references are frozen, and one who wants it.

use super::count::{M, PAGE, before_each, of, page};
use core::cell::{Cell, RefCell};
use minflt_addr::VirtAddr;
use minflt_mm::describe::Field;
use minflt_mm::{Advice, Event, FileHandle, MapRequest, Mm, Place, Prot, Sharing, Swap};
use minflt_sync::{Instance, Kind};
use minflt_tests::disk::Disk;
use minflt_tests::world::{boot_on, machine};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};

const PAGES: u64 = 8;
const BYTES: u64 = PAGES * PAGE;
/// More accesses than a fault makes that maps 8 pages.
const MANY: u64 = 20_000;

/// What the other one says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Paused,
    Done,
}

fn map(mm: &Mm<M>, file: &FileHandle<'_, M>) {
    let request = MapRequest::new(Place::Fixed(page(0)), BYTES, Prot::READ);
    let mapped = mm.mmap_file(&request, file, 0, Sharing::Shared);
    assert_eq!(mapped, Ok(page(0)));
}

/// A page behind the file's, in the same table.
fn beside() -> VirtAddr {
    page(2 * PAGES)
}

/// Where the read-modify-writes of one thread went, in order.
type Exchanged = Rc<RefCell<Vec<usize>>>;

/// Pages out page 3 of a file, and stops behind read-modify-write number `stop` until it is told to
/// go on. Returns where these went.
fn page_out(mm: &Mm<M>, stop: usize, said: &Sender<Said>, go: Receiver<()>) -> Vec<usize> {
    let (exchanged, paused) = (Exchanged::default(), said.clone());
    let (seen, mut stopped) = (Rc::clone(&exchanged), false);
    before_each(Some(Box::new(move |at, kind| {
        if seen.borrow().len() == stop && !stopped {
            stopped = true;
            // Whoever does not answer has gone.
            let _answer = paused.send(Said::Paused).map(|()| go.recv());
        }
        if kind == Kind::Rmw {
            seen.borrow_mut().push(at);
        }
    })));
    assert_eq!(mm.madvise(page(3), PAGE, Advice::PageOut), Ok(()));
    before_each(None);
    said.send(Said::Done).expect("somebody listens");
    exchanged.take()
}

/// Faults on page 1 while the other one is stopped; returns whether it waited for it.
fn fault_waits(mm: &Mm<M>, go: &Sender<()>) -> bool {
    let (waited, go) = (Rc::new(Cell::new(false)), go.clone());
    let (seen, mut left) = (Rc::clone(&waited), MANY);
    before_each(Some(Box::new(move |_, _| {
        left = left.saturating_sub(1);
        if left == 0 && !seen.replace(true) {
            // It will wait for ever, else.
            let _gone_on = go.send(());
        }
    })));
    let found = mm.thread().load(page(1));
    before_each(None);
    assert_eq!(found, Ok(0));
    waited.get()
}

/// What came of a run that is stopped behind read-modify-write number `stop`, if there are so many.
struct Run {
    /// The numbers of those that changed how many refer to a frame.
    references: Vec<usize>,
    waited: bool,
    skipped: u64,
}

fn run(stop: usize) -> Run {
    let sys = boot_on::<M>(machine(2, 8 << 20), of("linux-6.15"), Swap::None);
    let _first = sys.machine().enter(0);
    let file = sys.open_file(Disk::new(BYTES, &[]), BYTES).expect("memory");
    for index in 0..PAGES {
        assert_eq!(file.read_word(index * PAGE), Ok(Some(0)));
    }
    let (one, other) = (sys.new_mm().expect("memory"), sys.new_mm().expect("memory"));
    map(&one, &file);
    let anon = one.mmap(Place::Fixed(beside()), PAGE, Prot::READ_WRITE);
    assert_eq!(anon, Ok(beside()));
    assert_eq!(one.thread().store(beside(), 1), Ok(()));
    let (say, said) = channel();
    let (go, wait) = channel();
    let (exchanged, waited) = std::thread::scope(|scope| {
        let paging_out = scope.spawn(|| {
            let _second = sys.machine().enter(1);
            map(&other, &file);
            assert_eq!(other.thread().load(page(3)), Ok(0));
            page_out(&other, stop, &say, wait)
        });
        let stopped = said.recv() == Ok(Said::Paused);
        let waited = stopped && fault_waits(&one, &go);
        if stopped {
            let _gone_on = go.send(());
            // The other one may wait for this CPU's answer.
            while said.try_recv() != Ok(Said::Done) {
                assert_eq!(one.thread().load(beside()), Ok(1));
            }
        }
        (paging_out.join().expect("ends"), waited)
    });
    let base = sys.machine().ram().base.addr();
    let references = (1..).zip(exchanged).filter(|(_, at)| {
        let place = sys.describe((at - base) as u64);
        place.object == "frame" && place.field == Field::Named("refs")
    });
    let references = references.map(|(number, _)| number).collect();
    let skipped = sys.count_of(Event::FaultAroundSkipped);
    drop((one, other, file));
    sys.check_ledger(&[]).expect("nothing is left");
    Run {
        references,
        waited,
        skipped,
    }
}

/// `mm/fault/around.rs`: wherever the references of a page change that is reclaimed, be it to
/// nothing, a fault that would map the page beside its own goes on without it.
#[test]
fn fault_around_waits_for_no_page_that_is_frozen() {
    let stops = run(usize::MAX).references;
    assert!(stops.len() > 2, "{stops:?}");
    let mut skipped = 0;
    for stop in stops {
        let run = run(stop);
        assert!(!run.waited, "waits behind read-modify-write {stop}");
        skipped += run.skipped;
    }
    assert!(skipped > 0, "no page was passed over");
}
