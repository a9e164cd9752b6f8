//! Schedules: the choices of a run, as text that can be copied and replayed.
//!
//! Left alone, a CPU runs until it blocks, then the lowest-numbered CPU that can run follows, and
//! every store reaches memory at once. A [`Schedule`] lists only what was chosen otherwise, each at
//! the number of its step, so that it is short; nothing else is needed to run it again.

use core::fmt;
use core::str::FromStr;

/// What was chosen at one step, where it was not what would have happened anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The step, counted from 1.
    pub step: u64,
    /// What was chosen.
    pub to: To,
}

/// What a choice can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// This CPU runs next.
    Cpu(u32),
    /// The CPU that runs takes the next task of its queue.
    NextTask,
    /// The store made after this step stays in its CPU's buffer.
    Hold,
    /// Before the next step the oldest store in this CPU's buffer reaches memory.
    Drain(u32),
}

impl To {
    /// The order of choices that belong to one step.
    pub(crate) const fn rank(self) -> u32 {
        match self {
            Self::Cpu(_) | Self::NextTask => 0,
            Self::Hold => 1,
            Self::Drain(_) => 2,
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "{cpu}"),
            Self::NextTask => f.write_str("next"),
            Self::Hold => f.write_str("hold"),
            Self::Drain(cpu) => write!(f, "drain{cpu}"),
        }
    }
}

/// The choices of a run; written as `12:1 40:0 40:hold 47:drain0 55:next`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule(pub Vec<Choice>);

impl Schedule {
    /// Whether a store is held back, so that it needs store buffers.
    #[must_use]
    pub fn holds_stores(&self) -> bool {
        self.0.iter().any(|choice| choice.to == To::Hold)
    }

    /// How often another CPU or task was made to run.
    #[must_use]
    pub fn switches(&self) -> usize {
        self.0.iter().filter(|choice| choice.to.rank() == 0).count()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Choice { step, to }) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{step}:{to}")?;
        }
        Ok(())
    }
}

/// A schedule that cannot be read: which choice is wrong, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError {
    /// Which choice, from 1.
    number: usize,
    /// At which character, from 1.
    at: usize,
    text: String,
    wrong: Wrong,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    NoChoice,
    /// The choice before it is of this step.
    Order(u64),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number, at, text, ..
        } = self;
        write!(f, "choice {number}, at character {at}: \"{text}\" ")?;
        match self.wrong {
            Wrong::NoChoice => f.write_str(
                "is not a valid choice; expected STEP:CPU, STEP:next, STEP:hold or STEP:drainCPU",
            ),
            Wrong::Order(step) => write!(
                f,
                "is out of order after step {step}: steps must ascend, and within a step the order \
                 is CPU or next, hold, drain"
            ),
        }
    }
}

impl core::error::Error for ScheduleError {}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let mut choices: Vec<Choice> = Vec::new();
        for part in text.split_whitespace() {
            let wrong = |wrong| {
                let before = &text[..part.as_ptr() as usize - text.as_ptr() as usize];
                ScheduleError {
                    number: before.split_whitespace().count() + 1,
                    at: before.chars().count() + 1,
                    text: part.to_owned(),
                    wrong,
                }
            };
            let choice = choice(part).ok_or_else(|| wrong(Wrong::NoChoice))?;
            if let Some(last) = choices.last() {
                let (was, is) = (last.to.rank(), choice.to.rank());
                let drains = was == 2 && is == 2;
                if (last.step, was) >= (choice.step, is) && !(drains && last.step == choice.step) {
                    return Err(wrong(Wrong::Order(last.step)));
                }
            }
            choices.push(choice);
        }
        Ok(Self(choices))
    }
}

fn choice(part: &str) -> Option<Choice> {
    let (step, to) = part.split_once(':')?;
    let step = step.parse().ok()?;
    let to = match (to, to.strip_prefix("drain")) {
        ("next", _) => To::NextTask,
        ("hold", _) => To::Hold,
        (_, Some(cpu)) => To::Drain(cpu.parse().ok()?),
        (cpu, None) => To::Cpu(cpu.parse().ok()?),
    };
    Some(Choice { step, to })
}

/// Reads a schedule in the order of its steps.
#[derive(Debug)]
pub(crate) struct Plan {
    choices: Vec<Choice>,
    at: usize,
}

impl Plan {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        Self {
            choices: schedule.0.clone(),
            at: 0,
        }
    }

    /// The first choice of `step` that `is` what was asked for. It is not given again, and neither
    /// is what stands before it.
    pub(crate) fn take(&mut self, step: u64, is: impl Fn(To) -> bool) -> Option<To> {
        while self.choices.get(self.at).is_some_and(|c| c.step < step) {
            self.at += 1;
        }
        let of_step = self.choices[self.at..]
            .iter()
            .take_while(|c| c.step == step);
        let (skipped, found) = of_step.enumerate().find(|(_, c)| is(c.to))?;
        let to = found.to;
        self.at += skipped + 1;
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Plan, Schedule, To};

    #[test]
    fn a_schedule_reads_as_it_is_written() {
        let choice = |step, to| Choice { step, to };
        let schedule = Schedule(vec![
            choice(3, To::Cpu(1)),
            choice(3, To::Hold),
            choice(3, To::Drain(2)),
            choice(3, To::Drain(2)),
            choice(9, To::NextTask),
            choice(10, To::Cpu(0)),
        ]);
        let text = "3:1 3:hold 3:drain2 3:drain2 9:next 10:0";
        assert_eq!(schedule.to_string(), text);
        assert_eq!(text.parse(), Ok(schedule.clone()));
        assert!(schedule.holds_stores());
        assert_eq!(schedule.switches(), 3);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let error = |text: &str| text.parse::<Schedule>().unwrap_err().to_string();
        assert_eq!(
            error("3:1  9"),
            "choice 2, at character 6: \"9\" is not a valid choice; expected STEP:CPU, STEP:next, \
             STEP:hold or STEP:drainCPU"
        );
        let order = "is out of order after step 9: steps must ascend, and within a step the order \
                     is CPU or next, hold, drain";
        for (text, number, at, part) in [
            ("9:1 3:0", 2, 5, "3:0"),
            ("1:0 9:hold 9:1", 3, 12, "9:1"),
            ("9:1 9:1", 2, 5, "9:1"),
            ("9:drain1 9:hold", 2, 10, "9:hold"),
        ] {
            assert_eq!(
                error(text),
                format!("choice {number}, at character {at}: \"{part}\" {order}")
            );
        }
        assert!("3:drain".parse::<Schedule>().is_err());
        assert!("x:1".parse::<Schedule>().is_err());
    }

    #[test]
    fn a_plan_gives_each_choice_at_its_step_and_skips_what_nobody_asked_for() {
        let schedule = "2:1 2:hold 2:drain0 2:drain1 5:0".parse().unwrap();
        let mut plan = Plan::new(&schedule);
        let drains = |to| matches!(to, To::Drain(_));
        assert_eq!(plan.take(1, drains), None);
        assert_eq!(plan.take(2, drains), Some(To::Drain(0)));
        assert_eq!(plan.take(2, |to| to == To::Hold), None, "passed");
        assert_eq!(plan.take(2, drains), Some(To::Drain(1)));
        assert_eq!(plan.take(2, drains), None);
        assert_eq!(plan.take(7, |_| true), None);
    }
}
