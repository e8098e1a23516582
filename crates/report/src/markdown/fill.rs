//! Chooses how much of each part a comment shows. Each block has several forms, from one line to the whole content, and
//! each form has a rank. The room goes to the forms in the order of their ranks, so that dangerous changes are shown
//! first. The parts that are left out are counted.

use std::ops::Add;

use crate::danger::Danger;

/// The maximum number of lines of a fold that is open.
const SHORT: usize = 15;

/// The maximum number of lines in all open folds of a comment.
const OPEN: usize = 80;

/// The attribute that makes a fold open.
const OPEN_WORD: &str = " open";

/// The importance of a form to a reader, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The table of a few stacks, and denials of policies.
    Overview,
    /// A line about a change of a live resource.
    Line(Danger),
    /// The values of a change of a live resource.
    Values(Danger),
    /// A line about a resource that is created, or taken over without a change.
    Harmless,
    /// Drift that the merge reverts, and policy findings that deny nothing.
    Beside,
    /// The values of a change with their paths as a tree.
    Tree(Danger),
    /// The whole content of created objects.
    Whole,
    /// Names of stacks, and the reasons why they are affected.
    Background,
}

/// The counts of the parts that a comment leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, derive_more::Add)]
pub struct Omitted {
    /// The changed resources whose values are not shown.
    pub values: usize,
    /// The changed resources that are not shown at all.
    pub resources: usize,
    /// The other lines that are left out: notes, findings, names of stacks, reasons.
    pub lines: usize,
}

impl Omitted {
    pub(super) fn values(values: usize) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }

    pub(super) fn resources(resources: usize) -> Self {
        Self {
            resources,
            ..Self::default()
        }
    }

    pub(super) fn lines(lines: usize) -> Self {
        Self {
            lines,
            ..Self::default()
        }
    }
}

/// The text of one block.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    pub text: String,
    /// The number of lines that are visible to a reader.
    pub lines: usize,
}

impl Text {
    /// Creates a text whose lines do not count, because no reader needs them at once.
    pub(super) fn uncounted(text: String) -> Self {
        Self { text, lines: 0 }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { text, lines: 1 }
    }
}

/// One form of a block, with a certain length.
pub(super) struct Form<'a> {
    pub rank: Rank,
    /// The counts of the parts that this form leaves out.
    pub omitted: Omitted,
    render: Box<dyn Fn() -> Text + 'a>,
}

impl<'a> Form<'a> {
    /// Creates a form that leaves out nothing.
    pub(super) fn new(rank: Rank, render: impl Fn() -> Text + 'a) -> Self {
        Self {
            rank,
            omitted: Omitted::default(),
            render: Box::new(render),
        }
    }

    /// Sets the counts of the parts that the form leaves out.
    pub(super) fn without(self, omitted: Omitted) -> Self {
        Self { omitted, ..self }
    }
}

/// The smallest part of a comment that is shown or left out.
pub(super) struct Block<'a> {
    /// The counts of the values, resources and lines that are left out if the block is not shown.
    pub hidden: Omitted,
    /// The forms in which the block can be shown, from the shortest to the longest. A later form never leaves out more
    /// than an earlier one.
    pub forms: Vec<Form<'a>>,
}

impl<'a> Block<'a> {
    pub(super) fn new(hidden: Omitted, form: Form<'a>) -> Self {
        let forms = vec![form];
        Self { hidden, forms }
    }
}

/// Blocks under a title. The title is shown only if one of the blocks is.
pub(super) struct Section<'a> {
    head: Head,
    pub blocks: Vec<Block<'a>>,
    /// Returns the line with the number of blocks that are not shown.
    more: fn(usize) -> String,
    end: &'static str,
}

enum Head {
    /// A fold (`<details>`) with this title, which is open if its content is short.
    Fold(String),
    /// A fold with this title, which is always closed.
    Closed(String),
    /// A text without a fold.
    Plain(String),
}

impl<'a> Section<'a> {
    /// Creates a fold (`<details>`), which is open if its content is short and earlier folds left enough room.
    pub(super) fn fold(title: String, blocks: Vec<Block<'a>>) -> Self {
        Self {
            head: Head::Fold(title),
            blocks,
            more: |_| String::new(),
            end: "</details>\n\n",
        }
    }

    /// Creates a fold that is always closed.
    pub(super) fn closed(title: String, blocks: Vec<Block<'a>>) -> Self {
        Self {
            head: Head::Closed(title),
            ..Self::fold(String::new(), blocks)
        }
    }

    /// Creates blocks after a text, with another text at the end.
    pub(super) fn plain(head: String, blocks: Vec<Block<'a>>, end: &'static str) -> Self {
        Self {
            head: Head::Plain(head),
            end,
            ..Self::fold(String::new(), blocks)
        }
    }

    /// Sets the text at the end.
    pub(super) fn with_end(self, end: &'static str) -> Self {
        Self { end, ..self }
    }

    /// Sets the line with the number of blocks that are not shown.
    pub(super) fn with_more(self, more: fn(usize) -> String) -> Self {
        Self { more, ..self }
    }

    fn head(&self, is_open: bool) -> String {
        let fold = |title: &str, word: &str| format!("<details{word}><summary>{title}</summary>\n\n");
        match &self.head {
            Head::Fold(title) if is_open => fold(title, OPEN_WORD),
            Head::Fold(title) | Head::Closed(title) => fold(title, ""),
            Head::Plain(text) => text.clone(),
        }
    }

    /// Returns the size of a section in bytes without its blocks.
    fn frame(&self) -> usize {
        self.head(true).len() + (self.more)(self.blocks.len()).len() + self.end.len()
    }
}

/// The form that was chosen for a block.
#[derive(Default)]
struct Chosen {
    /// The number of the form, from 1; 0 if the block is not shown.
    form: usize,
    text: Text,
}

/// A form of a block that may be chosen.
struct Step {
    rank: Rank,
    section: usize,
    block: usize,
    /// The number of the form, from 1.
    form: usize,
}

/// The sections with their chosen forms.
pub(super) struct Filled {
    /// The text of each section; empty if none of its blocks is shown.
    pub texts: Vec<String>,
    /// The counts of the parts that are left out.
    pub omitted: Omitted,
}

/// Chooses forms that fit in `room` bytes.
pub(super) fn fill(sections: &[Section<'_>], room: usize) -> Filled {
    let mut fill = Fill {
        sections,
        chosen: sections
            .iter()
            .map(|section| section.blocks.iter().map(|_| Chosen::default()).collect())
            .collect(),
        used: 0,
    };
    let steps = steps(sections);
    // With very many dangerous changes, their lines alone would fill the comment, so half of the room is kept for
    // values.
    fill.take(&steps, room / 2, |rank| rank < Rank::Values(Danger::Grave));
    fill.take(&steps, room, |rank| {
        matches!(rank, Rank::Overview | Rank::Values(_))
    });
    // The remaining room goes to all forms by rank, including lines that did not fit in the first half.
    fill.take(&steps, room, |_| true);
    Filled {
        texts: fill.texts(),
        omitted: fill.omitted(),
    }
}

/// Returns all forms in the order in which they get room.
fn steps(sections: &[Section<'_>]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (section, blocks) in sections.iter().map(|section| &section.blocks).enumerate() {
        for (block, forms) in blocks.iter().map(|block| &block.forms).enumerate() {
            steps.extend(forms.iter().enumerate().map(|(form, of)| Step {
                rank: of.rank,
                section,
                block,
                form: form + 1,
            }));
        }
    }
    // The sort is stable, so forms of equal rank stay in the order of the comment.
    steps.sort_by_key(|step| step.rank);
    steps
}

struct Fill<'s, 'a> {
    sections: &'s [Section<'a>],
    /// The chosen forms, by section and block.
    chosen: Vec<Vec<Chosen>>,
    used: usize,
}

impl Fill<'_, '_> {
    /// Chooses forms of some ranks if they fit. A later form may be smaller, so each one is tried.
    fn take(&mut self, steps: &[Step], room: usize, is_wanted: impl Fn(Rank) -> bool) {
        for step in steps.iter().filter(|step| is_wanted(step.rank)) {
            let section = &self.sections[step.section];
            let chosen = &self.chosen[step.section];
            let now = &chosen[step.block];
            if now.form >= step.form || self.used >= room {
                continue;
            }
            // The first block of a section also adds the title and the end of the section.
            let frame = if chosen.iter().all(|block| block.form == 0) {
                section.frame()
            } else {
                0
            };
            let text = (section.blocks[step.block].forms[step.form - 1].render)();
            let used = self.used - now.text.text.len() + text.text.len() + frame;
            if used <= room {
                self.used = used;
                self.chosen[step.section][step.block] = Chosen {
                    form: step.form,
                    text,
                };
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        let mut room = OPEN;
        let of_section = |(section, chosen): (&Section<'_>, &Vec<Chosen>)| {
            if chosen.iter().all(|block| block.form == 0) {
                return String::new();
            }
            let lines: usize = chosen.iter().map(|block| block.text.lines).sum();
            // The title of an open fold takes room, too.
            let is_open = lines > 0 && lines <= SHORT && lines + 2 <= room;
            if is_open && matches!(section.head, Head::Fold(_)) {
                room -= lines + 2;
            }
            let blocks = joined(chosen.iter().map(|block| block.text.text.as_str()));
            let more = match chosen.iter().filter(|block| block.form == 0).count() {
                0 => String::new(),
                hidden => (section.more)(hidden),
            };
            format!("{}{blocks}{more}{}", section.head(is_open), section.end)
        };
        self.sections.iter().zip(&self.chosen).map(of_section).collect()
    }

    fn omitted(&self) -> Omitted {
        let sections = self.sections.iter().zip(&self.chosen);
        let blocks = sections.flat_map(|(section, chosen)| section.blocks.iter().zip(chosen));
        let left_out = blocks.map(|(block, chosen)| match chosen.form {
            0 => block.hidden,
            form => block.forms[form - 1].omitted,
        });
        left_out.fold(Omitted::default(), Omitted::add)
    }
}

/// Joins the texts of blocks. Consecutive list items form one list, without an empty line between them.
fn joined<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let mut all = String::new();
    let mut is_list = false;
    for text in texts.filter(|text| !text.is_empty()) {
        let continues = text.starts_with("- ");
        if is_list && continues && all.ends_with("\n\n") {
            all.pop();
        }
        is_list = continues;
        all.push_str(text);
    }
    all
}
