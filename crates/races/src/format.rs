//! The page-table formats that races are staged on.

use super::scenes::Scene;
use super::stage::{self, Scratch};
use minflt_mm::Config;
use minflt_pgtable::each_format;
use minflt_sim::RunOptions;
use minflt_sim::RunReport;

macro_rules! formats {
    ($($name:ident),+) => {
        /// A page-table format.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "named as their types are")]
        pub enum Format { $($name),+ }

        impl Format {
            /// Every format.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name, as [`minflt_pgtable::Paging::ID`] has it.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$name => <minflt_pgtable::$name as minflt_pgtable::Paging>::ID),+
                }
            }

            /// Plays a scene on a stage with tables of this format.
            pub(super) fn perform(
                self,
                scratch: &mut Scratch,
                scene: Scene,
                config: Config,
                options: &RunOptions<'_>,
            ) -> (RunReport, String) {
                match self {
                    $(Self::$name => {
                        stage::perform::<minflt_pgtable::$name>(scratch, scene, config, options)
                    }),+
                }
            }
        }
    };
}

each_format!(formats);

impl Format {
    /// The format called `id`.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.id() == id)
    }
}
