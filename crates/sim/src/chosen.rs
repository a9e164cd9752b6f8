//! A page-table format that is chosen at run time.
//!
//! *Problem.* A system is compiled for its format, and a program that plays every race on every
//! format would hold a dozen copies of all of `mm`: minutes of a compiler's time.
//!
//! *Idea.* [`Chosen`] is one format to the compiler; which one it is, a thread looks up. A
//! simulation runs on one thread from its first step to its last, and whoever begins one chooses.
//!
//! *Cost.* A load of a thread's variable wherever a format's data would be a constant.

use core::cell::Cell;
use core::marker::PhantomData;
use minflt_pgtable::{About, FORMATS, Paging};
use minflt_sync::Word;

thread_local! {
    static CHOSEN: Cell<&'static About> = const { Cell::new(&FORMATS[0]) };
}

/// The format that the calling thread chose, which has entries of width `W`.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<W>(PhantomData<fn() -> W>);

impl<W: Word> Paging for Chosen<W> {
    type Word = W;

    #[inline(always)]
    fn about() -> &'static About {
        CHOSEN.get()
    }
}

impl<W: Word> Chosen<W> {
    /// From now on the calling thread's format is `about`, until it chooses another. Whatever has
    /// tables of a format is used only while that is the choice.
    ///
    /// # Panics
    /// If entries of the format are not of width `W`.
    pub fn choose(about: &'static About) {
        assert_eq!(
            about.word_bits as usize,
            8 * size_of::<W>(),
            "entries of {} are of another width",
            about.id
        );
        CHOSEN.set(about);
    }
}

#[cfg(test)]
mod tests {
    use super::Chosen;
    use minflt_pgtable::{FORMATS, Paging};
    use std::thread;

    #[test]
    fn a_choice_holds_until_the_next_and_for_its_thread_only() {
        let id = || Chosen::<u64>::about().id;
        for about in FORMATS.iter().filter(|about| about.word_bits == 64) {
            Chosen::<u64>::choose(about);
            assert_eq!((id(), Chosen::<u64>::shift()), (about.id, about.page_shift));
            let elsewhere = thread::scope(|scope| scope.spawn(id).join());
            assert_eq!(elsewhere.ok(), Some(FORMATS[0].id));
        }
    }
}
