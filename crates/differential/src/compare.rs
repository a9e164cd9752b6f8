//! One case on all subjects; and the shortest case that still differs.

use crate::record::{Record, Subject, difference};
use crate::step::Step;
use crate::{generate, model::Spec};
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
    let (at, how) = match subject.run(steps, expected) {
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
pub fn shrink(subject: &mut dyn Subject, first: Disagreement) -> Disagreement {
    let mut best = first;
    let mut chunk = best.steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < best.steps.len() {
            let mut fewer = best.steps.clone();
            fewer.drain(at..(at + chunk).min(best.steps.len()));
            match disagreement(subject, &fewer) {
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

/// Whether the subject disagrees with the model about these steps, all of which stay inside.
pub fn disagreement(subject: &mut dyn Subject, steps: &[Step]) -> Option<Disagreement> {
    if steps.is_empty() || !steps.iter().all(generate::stays_inside) {
        return None;
    }
    let expected = Spec.run(steps, &[]).unwrap_or_default();
    compare(subject, steps, &expected)
}
