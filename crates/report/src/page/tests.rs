use super::{Report, Section, prose};
use crate::picture::{Curves, Picture};
use crate::published::{overview, posting_tables, postings};
use crate::status::Status;
use crate::table::{Cell, Column, Table};

fn sample() -> Report {
    let posting = Column::number("published", "faults/s");
    let here = Column::number("here", "faults/s").with_status(Status::Uncalibrated);
    let mut table = Table::new("pft <32 GiB>", [Column::text("threads"), posting, here]);
    table.rows = vec![
        vec!["1".into(), "56553.456".into(), "51,000".into()],
        vec![
            "2".into(),
            "121511.453".into(),
            Cell::with_status("120,000", Status::Fitted),
        ],
    ];
    table
        .footnotes
        .push("Run `minflt reproduce 2004`.".to_owned());
    Report {
        title: "A & B".to_owned(),
        lead: "One.\n\nTwo \"quoted\".".to_owned(),
        sections: vec![Section {
            heading: "2004".to_owned(),
            intro: "<script>alert('x')</script>".to_owned(),
            tables: vec![table],
            open: true,
            pictures: Vec::new(),
            notes: vec!["A note.".to_owned()],
        }],
        footer: "Made by `minflt`.".to_owned(),
    }
}

#[test]
fn text_is_escaped_and_nothing_is_loaded() {
    let html = sample().to_html();
    assert!(html.contains("<title>A &amp; B</title>"), "{html}");
    assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
    assert!(html.contains("<figcaption>pft &lt;32 GiB&gt;</figcaption>"));
    assert!(!html.contains("alert('x')") && html.contains("default-src 'none'"));
    for forbidden in [
        "<link", "<img", "http:", "https:", " src=", "url(", "@import", "style=\"",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn tags_are_closed() {
    for html in [sample().to_html(), Report::default().to_html()] {
        for tag in [
            "html", "body", "main", "section", "figure", "table", "tr", "td", "th", "p",
        ] {
            let opened = html.matches(&format!("<{tag}>")).count()
                + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}

#[test]
fn curves_bring_what_draws_them_and_their_text_ends_no_script() {
    let mut report = sample();
    assert!(!report.to_html().contains("uPlot="));
    report.sections[0].pictures = vec![
        Picture::Curves(Curves {
            title: "</script><b>".into(),
            counts: vec![1.0, 2.0],
            ..Curves::default()
        }),
        Picture::Drawing {
            title: "flames".into(),
            svg: "<svg \"#\">".into(),
            words: String::new(),
        },
    ];
    let html = report.to_html();
    assert!(
        html.contains("uPlot=") && html.contains("\\u003c/script>\\u003cb>"),
        "{html}"
    );
    assert!(html.contains("src=\"data:image/svg+xml,%3Csvg %22%23%22%3E\""));
    assert_eq!(
        html.matches("<script").count(),
        html.matches("</script>").count()
    );
}

#[test]
fn simulated_numbers_say_so() {
    let html = sample().to_html();
    assert!(
        html.contains("<td class=\"n uncalibrated\">51,000</td>"),
        "{html}"
    );
    assert!(
        html.contains(
            "<td class=\"n fitted\">120,000<span class=\"label fitted\">fitted</span></td>"
        )
    );
    assert!(html.contains("<td class=\"n\">56553.456</td>"));
    assert!(html.contains(Status::Uncalibrated.meaning()));
    assert!(
        !html.contains(Status::Measured.meaning()),
        "the legend names what is used"
    );
}

#[test]
fn every_status_has_its_style() {
    for status in Status::ALL {
        assert!(
            super::STYLE.contains(&format!("td.{}", status.name())),
            "{status}"
        );
    }
}

#[test]
fn backquotes_are_code() {
    assert_eq!(prose("a `b<c` d"), "a <code>b&lt;c</code> d");
    assert_eq!(prose("it`s one"), "it`s one");
    assert_eq!(prose("`a``b`"), "<code>a</code><code>b</code>");
}

#[test]
fn the_published_tables_make_a_page() {
    let postings = postings().unwrap();
    let section = |posting: &crate::published::Posting| Section {
        heading: format!("{}: {}", posting.id, posting.title),
        intro: posting.source.clone(),
        tables: posting_tables(posting),
        notes: posting.notes.clone(),
        ..Section::default()
    };
    let first = Section {
        heading: "Status".to_owned(),
        tables: vec![overview(&postings)],
        ..Section::default()
    };
    let sections: Vec<_> = core::iter::once(first)
        .chain(postings.iter().map(section))
        .collect();
    let report = Report {
        title: "Published".to_owned(),
        sections,
        ..Report::default()
    };
    let html = report.to_html();
    assert_eq!(html.matches("<table>").count(), 31);
    assert_eq!(html.matches("<li><a href=\"#section-").count(), 6);
}
