//! The page-table formats that races are staged on.

use super::scenes::Scene;
use super::stage::{self, Scratch};
use minflt_mm::Config;
use minflt_pgtable::{About, FORMATS, X86_64, each_format};
use minflt_sim::{Chosen, RunOptions, RunReport};

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

    /// Plays a scene on a stage with tables of this format. The one that most races are staged on
    /// is compiled for itself, the others share a copy for each width of an entry.
    pub(super) fn perform(
        self,
        scratch: &mut Scratch,
        scene: Scene,
        config: Config,
        options: &RunOptions<'_>,
    ) -> (RunReport, String) {
        let about = self.about();
        match (self, about.word_bits) {
            (Self::X86_64, _) => stage::perform::<X86_64>(scratch, scene, config, options),
            (_, 32) => {
                Chosen::<u32>::choose(about);
                stage::perform::<Chosen<u32>>(scratch, scene, config, options)
            }
            _ => {
                Chosen::<u64>::choose(about);
                stage::perform::<Chosen<u64>>(scratch, scene, config, options)
            }
        }
    }

    /// The format called `id`.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.id() == id)
    }
}
