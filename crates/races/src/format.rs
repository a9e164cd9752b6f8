//! The page-table formats that races are staged on.

use super::Race;
use super::stage::{self, Scratch};
use minflt_mm::Config;
use minflt_pgtable::{About, FORMATS, X86_64, each_format};
use minflt_sim::{Chosen, RunOptions, RunReport, Timeline};

macro_rules! formats {
    ($($name:ident),+) => {
        /// A page-table format.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "named as their types are")]
        pub enum Format { $($name),+ }

        impl Format {
            /// Every format.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
        }
    };
}

each_format!(formats);

impl Format {
    /// What there is to know about it.
    const fn about(self) -> &'static About {
        &FORMATS[self as usize]
    }

    /// Its name.
    #[must_use]
    pub const fn id(self) -> &'static str {
        self.about().id
    }

    /// Plays a race on a stage with tables of this format. The one that most races are staged on
    /// is compiled for itself, the others share a copy for each width of an entry.
    pub(super) fn perform(
        self,
        scratch: &mut Scratch,
        race: &Race,
        config: Config,
        options: &RunOptions<'_>,
    ) -> (RunReport, Option<Timeline>) {
        let about = self.about();
        if self == Self::X86_64 {
            return stage::perform::<X86_64>(scratch, race, config, options);
        }
        let held = match about.word_bits {
            // SAFETY: 1: the stage ends, or is left alone, before the choice does.
            32 => unsafe { Chosen::<u32>::hold(about) },
            // SAFETY: 1: as above.
            _ => unsafe { Chosen::<u64>::hold(about) },
        };
        let _held = held.unwrap_or_else(|other| panic!("{}: in the middle of one", other.id));
        match about.word_bits {
            32 => stage::perform::<Chosen<u32>>(scratch, race, config, options),
            _ => stage::perform::<Chosen<u64>>(scratch, race, config, options),
        }
    }

    /// The format called `id`.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.id() == id)
    }
}
