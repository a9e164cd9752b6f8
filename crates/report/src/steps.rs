//! A race's failing run, to be stepped through: a column for each thread, a row for each step.
//!
//! All rows are in the page's HTML, and folding is a check box that the style sheet reads, so
//! nothing is missing without scripts. The script adds the buttons' work: it highlights a row and
//! writes its text into a live region.

use crate::page::{paragraphs, prose};
use crate::picture::escape;

/// Folds of fewer steps are not mentioned: the numbers of the steps show them.
const FEW: usize = 4;

/// A failing run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The race's number, which is also its anchor.
    pub race: String,
    /// What must never happen.
    pub never: String,
    /// What the race teaches.
    pub teaches: String,
    /// What went wrong, the fix, and which kernel or patch had it: a heading and a text each.
    pub story: Vec<(String, String)>,
    /// The era, and the fix that it ran without.
    pub ran: String,
    /// The threads, and the CPU of each.
    pub lanes: Vec<Lane>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// How the run ended.
    pub outcome: String,
    /// How the same schedule ended with the fix.
    pub with_fix: String,
    /// The command that draws it.
    pub command: String,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// What it does.
    pub name: String,
    /// The CPU that it runs on.
    pub cpu: u32,
}

/// A step of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The scheduling point before it.
    pub at: u64,
    /// Its thread, by place among the lanes.
    pub lane: usize,
    /// What it is.
    pub text: String,
    /// Part in the failure, such as `freed here`.
    pub mark: Option<String>,
    /// When it is shown.
    pub shown: Shown,
    /// How many steps it stands for where steps are folded: itself, and those that repeat it.
    pub times: usize,
}

/// When a step is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Always.
    #[default]
    Always,
    /// Where steps are not folded: no other thread touches its object.
    Unfolded,
    /// Where steps are not folded: it repeats an earlier one, which says how often.
    Repeats,
}

impl Run {
    pub(crate) fn to_html(&self) -> String {
        let race = escape(&self.race);
        let mut out = format!(
            "<figure class=\"race\" id=\"race-{race}\">\n<details>\n\
             <summary>{race}: {}</summary>\n<p><strong>Must never happen:</strong> {}.</p>\n",
            prose(&self.teaches),
            prose(&self.never)
        );
        for (heading, text) in &self.story {
            out += &format!(
                "<p><strong>{}:</strong> {}</p>\n",
                prose(heading),
                prose(text)
            );
        }
        out += &paragraphs(&self.ran, "");
        out += &controls(&race);
        out += &self.grid();
        out + &format!(
            "<p><strong>How it ends:</strong> {}. {}</p>\n\
             <p class=\"command\"><code>{}</code> <a class=\"anchor\" href=\"#race-{race}\">link to this \
             race</a></p>\n</details>\n</figure>\n",
            prose(&self.outcome),
            prose(&self.with_fix),
            escape(&self.command)
        )
    }

    fn grid(&self) -> String {
        let mut out = format!(
            "<div class=\"steps\" tabindex=\"0\" role=\"group\" aria-label=\"Steps of {}; the arrow keys \
             move along them\">\n<table class=\"lanes\">\n<thead>\n<tr><th scope=\"col\">step</th>",
            escape(&self.race)
        );
        for lane in &self.lanes {
            out += &format!(
                "<th scope=\"col\">{}<span class=\"unit\">CPU {}</span></th>",
                prose(&lane.name),
                lane.cpu
            );
        }
        out += "</tr>\n</thead>\n<tbody>\n";
        // Rows that are hidden where steps are folded, and how many of them a fold stands for.
        let (mut hidden, mut count, mut lane) = (String::new(), 0, 0);
        for step in &self.steps {
            if step.shown == Shown::Always || step.lane != lane {
                out += &self.fold(lane, count);
                out.push_str(&core::mem::take(&mut hidden));
                (count, lane) = (0, step.lane);
            }
            match step.shown {
                Shown::Always => out += &self.step(step),
                Shown::Unfolded => count += 1,
                Shown::Repeats => {}
            }
            if step.shown != Shown::Always {
                hidden += &self.step(step);
            }
        }
        out += &self.fold(lane, count);
        out += &hidden;
        out + "</tbody>\n</table>\n</div>\n"
    }

    /// A row for steps that are folded.
    fn fold(&self, lane: usize, steps: usize) -> String {
        if steps < FEW {
            return String::new();
        }
        let name = self.lanes.get(lane).map_or("", |lane| &lane.name);
        let text = format!("{steps} steps of {name} on its own");
        self.row("fold", "...", lane, &prose(&text))
    }

    fn step(&self, step: &Step) -> String {
        let mut text = escape(&step.text);
        if step.times > 1 {
            text += &format!(" <span class=\"times\">({} times)</span>", step.times);
        }
        if let Some(mark) = &step.mark {
            text += &format!(" <strong class=\"mark\">{}</strong>", escape(mark));
        }
        let class = match step.shown {
            _ if step.mark.is_some() => "marked",
            Shown::Always => "",
            Shown::Unfolded | Shown::Repeats => "aside",
        };
        self.row(class, &step.at.to_string(), step.lane, &text)
    }

    /// A row with a text in its lane.
    fn row(&self, class: &str, head: &str, lane: usize, text: &str) -> String {
        let class = match class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        let empty = |lanes: usize| "<td></td>".repeat(lanes);
        format!(
            "<tr{class}><th scope=\"row\">{head}</th>{}<td>{text}</td>{}</tr>\n",
            empty(lane),
            empty(self.lanes.len().saturating_sub(lane + 1))
        )
    }
}

/// The buttons, the check box and the live region.
fn controls(race: &str) -> String {
    let button = |to: &str, text: &str| {
        format!("<button type=\"button\" class=\"to\" hidden data-to=\"{to}\">{text}</button>\n")
    };
    format!(
        "<div class=\"controls\" role=\"group\" aria-label=\"Steps of {race}\">\n{}{}{}\
         <label><input type=\"checkbox\" class=\"folded\" checked> fold what no other thread \
         touches</label>\n</div>\n<p class=\"now\" aria-live=\"polite\"></p>\n",
        button("previous", "Previous"),
        button("next", "Next"),
        button("mark", "Next mark"),
    )
}

#[cfg(test)]
mod tests {
    use super::{Lane, Run, Shown, Step};

    fn run() -> Run {
        let lane = |name: &str, cpu| Lane {
            name: name.into(),
            cpu,
        };
        let step = |at, lane, text: &str, shown| Step {
            at,
            lane,
            text: text.into(),
            shown,
            times: 1,
            mark: None,
        };
        let own = Shown::Unfolded;
        let mut run = Run {
            race: "P0".into(),
            lanes: vec![lane("munmap", 0), lane("fault <x>", 1)],
            steps: (1..=6).map(|at| step(at, 0, "own", own)).collect(),
            ..Run::default()
        };
        run.steps.push(step(7, 0, "frees vma#1", Shown::Always));
        run.steps
            .extend((8..=9).map(|at| step(at, 0, "own", Shown::Unfolded)));
        run.steps.push(Step {
            mark: Some("used here".into()),
            times: 3,
            ..step(10, 1, "vma#1 is poison", Shown::Always)
        });
        run
    }

    #[test]
    fn steps_are_rows_in_their_lane_and_long_runs_have_a_fold() {
        let html = run().to_html();
        assert_eq!(html.matches("<tr class=\"aside\">").count(), 8);
        assert_eq!(html.matches("<tr class=\"fold\">").count(), 1);
        assert!(html.contains("<td>6 steps of munmap on its own</td><td></td>"));
        assert!(html.contains("<tr><th scope=\"row\">7</th><td>frees vma#1</td><td></td></tr>"));
        assert!(html.contains("fault &lt;x&gt;") && !html.contains("<x>"));
    }

    #[test]
    fn a_mark_is_a_word_and_not_a_colour_alone() {
        let html = run().to_html();
        let row = "<tr class=\"marked\"><th scope=\"row\">10</th><td></td><td>vma#1 is poison \
                   <span class=\"times\">(3 times)</span> <strong class=\"mark\">used here</strong></td>";
        assert!(html.contains(row), "{html}");
        assert!(html.contains("aria-live=\"polite\""));
    }
}
