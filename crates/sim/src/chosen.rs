//! A page-table format selected at run time.
//!
//! *Problem.* A system is compiled for its format, and a program that plays every race on every
//! format would hold a dozen copies of all of `mm`: minutes of a compiler's time.
//!
//! *Idea.* [`Chosen`] is one format to the compiler; which one it is, a thread looks up. A
//! simulation runs on one thread from its first step to its last, and what it runs on holds the
//! thread's choice.
//!
//! *Why it is correct.* While somebody holds a choice ([`Held`]) nobody changes it, and without one
//! there is no format to be had. What has tables of the format is used no longer than it is held,
//! which whoever holds it promises.
//!
//! *Cost.* A load of a thread's variable wherever a format's data would be a constant.

use core::cell::Cell;
use core::marker::PhantomData;
use minflt_pgtable::{About, Paging};
use minflt_sync::Word;

thread_local! {
    static CHOSEN: Cell<Option<&'static About>> = const { Cell::new(None) };
    static HOLDERS: Cell<usize> = const { Cell::new(0) };
}

/// The format that the calling thread chose, which has entries of width `W`.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<W>(PhantomData<fn() -> W>);

impl<W: Word> Paging for Chosen<W> {
    type Word = W;

    /// # Panics
    /// If the thread holds no format.
    #[inline(always)]
    fn about() -> &'static About {
        match CHOSEN.get() {
            Some(about) => about,
            None => panic!("the thread holds no page-table format"),
        }
    }
}

/// The calling thread's choice, which nobody changes as long as this lives.
#[derive(Debug)]
pub struct Held(PhantomData<*const ()>);

impl<W: Word> Chosen<W> {
    /// The calling thread's format is `about`.
    ///
    /// # Errors
    /// The format that the thread holds already, if that is another.
    ///
    /// # Panics
    /// If entries of the format are not of width `W`.
    ///
    /// # Safety
    /// 1. Whatever is made with the chosen format on this thread is used on this thread only, and
    ///    no longer than what is returned lives.
    pub unsafe fn hold(about: &'static About) -> Result<Held, &'static About> {
        assert_eq!(
            about.word_bits as usize,
            8 * size_of::<W>(),
            "entries of {} are of another width",
            about.id
        );
        match CHOSEN.get() {
            Some(held) if held.id != about.id => return Err(held),
            _ => CHOSEN.set(Some(about)),
        }
        HOLDERS.set(HOLDERS.get() + 1);
        Ok(Held(PhantomData))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HOLDERS.set(HOLDERS.get() - 1);
        if HOLDERS.get() == 0 {
            CHOSEN.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chosen, Held};
    use minflt_pgtable::{About, FORMATS, Paging};
    use std::thread;

    fn hold(about: &'static About) -> Result<Held, &'static str> {
        // SAFETY: 1: nothing is made.
        unsafe { Chosen::<u64>::hold(about) }.map_err(|held| held.id)
    }

    #[test]
    fn a_choice_holds_for_its_thread_and_as_long_as_somebody_holds_it() {
        let wide = || FORMATS.iter().filter(|about| about.word_bits == 64);
        for about in wide() {
            let (first, second) = (hold(about), hold(about));
            assert!(first.is_ok() && second.is_ok());
            drop(first);
            assert_eq!(Chosen::<u64>::about().id, about.id);
            assert_eq!(Chosen::<u64>::shift(), about.page_shift);
            for other in wide().filter(|other| other.id != about.id) {
                assert_eq!(hold(other).err(), Some(about.id));
            }
            let elsewhere = thread::scope(|scope| scope.spawn(|| Chosen::<u64>::about().id).join());
            assert!(elsewhere.is_err(), "a thread that holds none has none");
        }
    }
}
