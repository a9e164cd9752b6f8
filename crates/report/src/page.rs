//! A report as one self-contained HTML page: no scripts, fonts or other files.
//!
//! All text is escaped; the only markup it may carry is backquotes around code.

use std::collections::BTreeSet;

use crate::status::Status;
use crate::table::{Align, Cell, Column, Table};

const STYLE: &str = include_str!("page.css");
/// Cells of words that are this short, in bytes, are not broken.
const WORD: usize = 24;

/// What a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What it says before its tables; paragraphs are set off by empty lines.
    pub intro: String,
    /// Its tables.
    pub tables: Vec<Table>,
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
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
             <h1>{title}</h1>\n{}</header>\n",
            paragraphs(&self.lead, " class=\"lead\""),
        );
        page += &self.contents();
        page += &self.legend();
        page += "<main>\n";
        for (number, section) in (1..).zip(&self.sections) {
            page += &section.to_html(number);
        }
        page += "</main>\n";
        if !self.footer.is_empty() {
            page += &format!("<footer>{}</footer>\n", prose(&self.footer));
        }
        page + "</body>\n</html>\n"
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
        format!("<dl class=\"legend\">\n{entries}</dl>\n")
    }
}

impl Section {
    fn to_html(&self, number: usize) -> String {
        let mut out = format!(
            "<section id=\"section-{number}\">\n<h2>{}</h2>\n{}",
            prose(&self.heading),
            paragraphs(&self.intro, ""),
        );
        out.extend(self.tables.iter().map(figure));
        out + &list(&self.notes) + "</section>\n"
    }
}

fn figure(table: &Table) -> String {
    let mut out = "<figure>\n".to_owned();
    if !table.title.is_empty() {
        out += &format!("<figcaption>{}</figcaption>\n", prose(&table.title));
    }
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
    out + "</tbody>\n</table>\n</div>\n" + &list(&table.footnotes) + "</figure>\n"
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

fn paragraphs(text: &str, class: &str) -> String {
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
fn prose(text: &str) -> String {
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

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests;
