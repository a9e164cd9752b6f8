//! One case on all subjects; and the shortest case that still differs.

use crate::generate::Choice;
use crate::model::Running;
use crate::record::{Record, Subject, difference};
use crate::step::Step;
use crate::window::Window;

use core::fmt;

/// Two subjects that disagree about a case.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The steps, up to the one that shows it.
    pub steps: Vec<Step>,
    /// Who disagrees with the model.
    pub subject: String,
    /// How.
    pub how: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}: {}", self.subject, self.how)?;
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}

/// Runs the case on a subject and compares it with what the model says.
pub fn compare(
    subject: &mut dyn Subject,
    steps: &[Step],
    expected: &[Record],
) -> Option<Disagreement> {
    let (at, how) = match subject.run(steps) {
        Ok(found) => expected
            .iter()
            .zip(&found)
            .enumerate()
            .find_map(|(at, (expected, found))| Some((at, difference(expected, found)?)))?,
        Err((how, at)) => (at, how),
    };
    Some(Disagreement {
        steps: steps[..(at + 1).min(steps.len())].to_vec(),
        subject: subject.name(),
        how,
    })
}

/// The shortest list of steps found that the subject and the model disagree about: steps are left
/// out, many at a time and then one by one, as long as some disagreement stays.
pub fn shrink(subject: &mut dyn Subject, first: Disagreement, choice: &Choice) -> Disagreement {
    let mut best = first;
    let mut chunk = best.steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < best.steps.len() {
            let mut fewer = best.steps.clone();
            fewer.drain(at..(at + chunk).min(best.steps.len()));
            match disagreement(subject, &fewer, choice) {
                Some(found) => {
                    best = found;
                    shorter = true;
                }
                None => at += chunk,
            }
        }
        if !shorter {
            chunk /= 2;
        }
    }
    best
}

/// Whether the subject disagrees with the model about these steps, if none of them is left out.
pub fn disagreement(
    subject: &mut dyn Subject,
    steps: &[Step],
    choice: &Choice,
) -> Option<Disagreement> {
    let mut running = Running::of(Window::of(steps), choice);
    let expected: Option<Vec<Record>> = steps
        .iter()
        .map(|step| choice.step(&mut running, step))
        .collect();
    compare(subject, steps, &expected?)
}
