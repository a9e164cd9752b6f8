//! A report as one self-contained HTML page: no other files, and nothing is asked of the network.
//!
//! All text is escaped; the only markup it may carry is backquotes around code. Without scripts the
//! page has all its tables and pictures but the curves, whose tables it has.

use std::collections::BTreeSet;

use crate::picture::{Curves, Picture, escape};
use crate::status::Status;
use crate::table::{Align, Cell, Column, Table};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// Steps through a race's run.
const STEPS: &str = include_str!("page/steps.js");
const UPLOT_STYLE: &str = include_str!("../vendor/uplot/uPlot.min.css");
const UPLOT: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
/// Nothing is loaded; what is written into the page may run and look as it likes.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; frame-src data:; object-src data:";
/// Cells of words that are this short, in bytes, are not broken.
const WORD: usize = 24;

/// What a page shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Its title and first heading.
    pub title: String,
    /// What it is, under the title; paragraphs are set off by empty lines.
    pub lead: String,
    /// Its sections.
    pub sections: Vec<Section>,
    /// The last line: how the page was made.
    pub footer: String,
}

/// A part of a page with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What it says before its tables; paragraphs are set off by empty lines.
    pub intro: String,
    /// Its pictures, before its tables.
    pub pictures: Vec<Picture>,
    /// Its tables; folded, unless [`Section::open`].
    pub tables: Vec<Table>,
    /// Whether its tables are open from the start.
    pub open: bool,
    /// Remarks after its tables.
    pub notes: Vec<String>,
}

impl Report {
    /// The page as HTML, the same bytes for the same report.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <title>{title}</title>\n<style>\n{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
             <h1>{title}</h1>\n{}</header>\n",
            paragraphs(&self.lead, " class=\"lead\""),
        );
        page += &self.contents();
        page += "<main>\n";
        for (number, section) in (1..).zip(&self.sections) {
            page += &section.to_html(number);
        }
        page += "</main>\n";
        page += &self.legend();
        if !self.footer.is_empty() {
            page += &format!("<footer>{}</footer>\n", prose(&self.footer));
        }
        let pictures = self.sections.iter().flat_map(|section| &section.pictures);
        if pictures
            .into_iter()
            .any(|it| matches!(it, Picture::Curves(_)))
        {
            page += &format!("<script>{UPLOT}</script>\n");
        }
        page + &format!("<script>{SCRIPT}{STEPS}</script>\n</body>\n</html>\n")
    }

    /// Links to the sections, if there are enough of them.
    fn contents(&self) -> String {
        if self.sections.len() < 3 {
            return String::new();
        }
        let links = (1..).zip(&self.sections).map(|(number, section)| {
            format!(
                "<li><a href=\"#section-{number}\">{}</a></li>\n",
                prose(&section.heading)
            )
        });
        format!(
            "<nav aria-label=\"Contents\">\n<ol>\n{}</ol>\n</nav>\n",
            links.collect::<String>()
        )
    }

    /// What each status on this page claims.
    fn legend(&self) -> String {
        let tables = || self.sections.iter().flat_map(|section| &section.tables);
        let columns = tables()
            .flat_map(|table| &table.columns)
            .filter_map(|column| column.status);
        let cells = tables().flat_map(|table| table.rows.iter().flatten());
        let used: BTreeSet<Status> = columns
            .chain(cells.filter_map(|cell| cell.status))
            .collect();
        if used.is_empty() {
            return String::new();
        }
        let entry = |status: Status| {
            format!(
                "<dt>{}</dt><dd>{}</dd>\n",
                label(status),
                escape(status.meaning())
            )
        };
        let entries: String = used.into_iter().map(entry).collect();
        format!(
            "<aside aria-label=\"Labels\">\n<h2>What the labels claim</h2>\n<dl class=\"legend\">\n\
             {entries}</dl>\n</aside>\n"
        )
    }
}

impl Section {
    fn to_html(&self, number: usize) -> String {
        let mut out = format!(
            "<section id=\"section-{number}\">\n<h2>{}</h2>\n{}",
            prose(&self.heading),
            paragraphs(&self.intro, ""),
        );
        out.extend(self.pictures.iter().map(picture));
        let tables = (1..).zip(&self.tables);
        out.extend(
            tables.map(|(at, table)| figure(table, &format!("table-{number}-{at}"), self.open)),
        );
        out + &list(&self.notes) + "</section>\n"
    }
}

fn picture(picture: &Picture) -> String {
    match picture {
        Picture::Factors(factors) => format!(
            "<figure>\n<figcaption>{}</figcaption>\n<div class=\"scroll\" tabindex=\"0\">\n{}</div>\n\
             </figure>\n",
            prose(&factors.title),
            factors.to_svg()
        ),
        Picture::Curves(curves) => curve_figure(curves),
        Picture::Run(run) => run.to_html(),
        Picture::Drawing { title, svg, words } => format!(
            "<figure>\n<details>\n<summary>{}</summary>\n{}<div class=\"scroll\" tabindex=\"0\">\n\
             <img alt=\"{}\" src=\"data:image/svg+xml,{}\">\n</div>\n</details>\n</figure>\n",
            prose(title),
            paragraphs(words, ""),
            escape(title),
            percent(svg)
        ),
    }
}

/// Bytes as part of a `data:` address.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b' '
            | b'='
            | b'/'
            | b'.'
            | b'-'
            | b':'
            | b';'
            | b','
            | b'('
            | b')'
            | b'_' => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// The curves' figures for the script, and places for what it draws.
fn curve_figure(curves: &Curves) -> String {
    // No `</script>` ends the element early.
    let data = serde_json::to_string(curves)
        .unwrap_or_default()
        .replace('<', "\\u003c");
    format!(
        "<figure class=\"curves\">\n<figcaption>{}, {}</figcaption>\n\
         <script type=\"application/json\">{data}</script>\n\
         <div class=\"plot\" role=\"img\" aria-label=\"{}: the table below has the figures; the arrow \
         keys move along the axis\"></div>\n\
         <p class=\"where\" aria-live=\"polite\"></p>\n<fieldset class=\"eras\"><legend>Eras</legend>\
         </fieldset>\n</figure>\n",
        prose(&curves.title),
        escape(&curves.unit),
        escape(&curves.title)
    )
}

fn figure(table: &Table, id: &str, open: bool) -> String {
    let mut out = format!("<figure id=\"{id}\">\n");
    let folded = !open;
    let title = match table.title.is_empty() {
        true => "Table".to_owned(),
        false => prose(&table.title),
    };
    out += &match folded {
        true => format!("<details>\n<summary>{title}</summary>\n"),
        false => format!("<figcaption>{title}</figcaption>\n"),
    };
    let command = match table.command.is_empty() {
        true => String::new(),
        false => format!("<code>{}</code> ", escape(&table.command)),
    };
    out += &format!(
        "<p class=\"command\">{command}<a class=\"anchor\" href=\"#{id}\">link to this table</a></p>\n"
    );
    // A region that scrolls must be reachable by the keyboard.
    out += "<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead>\n<tr>";
    out.extend(table.columns.iter().map(heading));
    out += "</tr>\n</thead>\n<tbody>\n";
    for row in &table.rows {
        out += "<tr>";
        out.extend(
            row.iter()
                .zip(&table.columns)
                .map(|(cell, column)| data(cell, column)),
        );
        out += "</tr>\n";
    }
    out += "</tbody>\n</table>\n</div>\n";
    out += &list(&table.footnotes);
    if folded {
        out += "</details>\n";
    }
    out + "</figure>\n"
}

fn heading(column: &Column) -> String {
    let mut text = prose(&column.name);
    if !column.unit.is_empty() {
        text += &format!("<span class=\"unit\">{}</span>", escape(&column.unit));
    }
    if let Some(status) = column.status {
        text += &format!("<span class=\"unit\">{}</span>", label(status));
    }
    let class = if column.align == Align::Right {
        " class=\"n\""
    } else {
        ""
    };
    format!("<th scope=\"col\"{class}>{text}</th>")
}

fn data(cell: &Cell, column: &Column) -> String {
    let behind = cell.label(column).map_or_else(String::new, label);
    let shape = match column.align {
        Align::Right => Some("n"),
        // A short name stays in one piece.
        Align::Left => (cell.text.len() <= WORD).then_some("word"),
    };
    let status = cell.status.or(column.status).map(Status::name);
    let classes: Vec<_> = shape.into_iter().chain(status).collect();
    let class = match classes.as_slice() {
        [] => String::new(),
        names => format!(" class=\"{}\"", names.join(" ")),
    };
    format!("<td{class}>{}{behind}</td>", prose(&cell.text))
}

fn label(status: Status) -> String {
    format!("<span class=\"label {}\">{status}</span>", status.name())
}

pub(crate) fn paragraphs(text: &str, class: &str) -> String {
    let parts = text
        .split("\n\n")
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| format!("<p{class}>{}</p>\n", prose(part)))
        .collect()
}

fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes
        .iter()
        .map(|note| format!("<li>{}</li>\n", prose(note)))
        .collect();
    format!("<ul class=\"notes\">\n{items}</ul>\n")
}

/// Escaped text, with code between backquotes; a backquote without its twin stays one.
pub(crate) fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (code, after))) = rest
        .split_once('`')
        .and_then(|(before, tail)| Some((before, tail.split_once('`')?)))
    {
        out += &format!("{}<code>{}</code>", escape(before), escape(code));
        rest = after;
    }
    out + &escape(rest)
}

#[cfg(test)]
mod tests;
