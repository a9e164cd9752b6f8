//! The command line.

use minflt_differential::run::Cases;

/// What is printed for `--help`.
pub(crate) const USAGE: &str = "\
usage: minflt-differential [OPTION...]

  --steps N        total number of steps (20000)
  --seed S         random seed of the steps (1)
  --who linux|mm   compare only this with the model; `linux` runs all calls, `mm` those it has
  --replay FILE    replay the steps of a file, one per line, instead of random ones
  --only small|huge  only small or only huge pages; by default every eighth case is huge
  --docs           regenerate the tables of docs/linux-compat.md
";

/// Who is compared with the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    All,
    Linux,
    Mm,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) steps: u64,
    pub(crate) seed: u64,
    pub(crate) who: Who,
    pub(crate) replay: Option<String>,
    pub(crate) docs: bool,
    pub(crate) cases: Cases,
}

impl Options {
    /// Reads the arguments; `None` where help is asked for.
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            steps: 20_000,
            seed: 1,
            who: Who::All,
            replay: None,
            docs: false,
            cases: Cases::Both,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} requires a value"));
            match arg.as_str() {
                "--steps" => options.steps = number(&value()?)?,
                "--seed" => options.seed = number(&value()?)?,
                "--who" => {
                    options.who = match value()?.as_str() {
                        "linux" => Who::Linux,
                        "mm" => Who::Mm,
                        other => {
                            return Err(format!(
                                "--who: unknown `{other}`; choices are linux | mm"
                            ));
                        }
                    };
                }
                "--only" => {
                    options.cases = match value()?.as_str() {
                        "small" => Cases::Small,
                        "huge" => Cases::Huge,
                        other => {
                            return Err(format!(
                                "--only: unknown `{other}`; choices are small | huge"
                            ));
                        }
                    };
                }
                "--replay" => options.replay = Some(value()?),
                "--docs" => options.docs = true,
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("unknown option `{other}`")),
            }
        }
        Ok(Some(options))
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits: String = text.chars().filter(|letter| *letter != '_').collect();
    digits
        .parse()
        .map_err(|_| format!("invalid number `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::{Options, Who};

    fn read(line: &str) -> Result<Option<Options>, String> {
        Options::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_line_is_read() {
        let options = read("--steps 1_000 --who linux --seed 7").unwrap().unwrap();
        assert_eq!((options.steps, options.seed), (1000, 7));
        assert_eq!(options.who, Who::Linux);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(read("--stops 1").unwrap_err().contains("--stops"));
        assert!(read("--seed").unwrap_err().contains("requires a value"));
        assert_eq!(read("--help").unwrap(), None);
    }
}
