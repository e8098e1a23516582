//! The ranked fill: what of a comment is shown in which length. Each block has a few forms, from a line to everything; the
//! room goes to the forms in the order of their ranks, so that what is dangerous is read first. What is shortened is counted.

use std::ops::Add;

use crate::danger::Danger;

/// A fold with at most this many lines is open.
const SHORT: usize = 15;

/// The number of lines in all open folds of a comment.
const OPEN: usize = 80;

/// The bytes of the word by which a fold is open.
const OPEN_WORD: &str = " open";

/// How much is lost if a reader does not see a form; the first is what must not be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The table of few stacks, and what a policy denies.
    Overview,
    /// A line which says that something that runs is changed.
    Line(Danger),
    /// The values of such a change.
    Values(Danger),
    /// A line which says that something is created, or taken over as it is.
    Harmless,
    /// Drift that the merge restores, and the findings of policies that deny nothing.
    Beside,
    /// The way to a value as a tree.
    Tree(Danger),
    /// Whole created objects.
    Whole,
    /// Names of stacks, and why they are here.
    Background,
}

/// The counts of what a reader does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Omitted {
    /// Changed resources that are named without their values.
    pub values: usize,
    /// Changed resources that are not named.
    pub resources: usize,
    /// Other lines: notes, findings, names of stacks, reasons.
    pub lines: usize,
}

impl Omitted {
    pub(super) fn lines(lines: usize) -> Self {
        Self {
            lines,
            ..Self::default()
        }
    }
}

impl Add for Omitted {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            resources: self.resources + other.resources,
            lines: self.lines + other.lines,
        }
    }
}

/// A text of one block.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    pub text: String,
    /// The number of lines that a reader sees of it.
    pub lines: usize,
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { text, lines: 1 }
    }
}

/// One length of a block.
pub(super) struct Form<'a> {
    pub rank: Rank,
    /// The counts of what this form leaves out.
    pub omitted: Omitted,
    render: Box<dyn Fn() -> Text + 'a>,
}

impl<'a> Form<'a> {
    /// Returns a form that leaves out nothing.
    pub(super) fn new(rank: Rank, render: impl Fn() -> Text + 'a) -> Self {
        Self {
            rank,
            omitted: Omitted::default(),
            render: Box::new(render),
        }
    }

    /// Returns the form with what it leaves out.
    pub(super) fn without(self, omitted: Omitted) -> Self {
        Self { omitted, ..self }
    }
}

/// The smallest part that is shown or not.
pub(super) struct Block<'a> {
    /// The counts of what is left out if the block is not shown.
    pub hidden: Omitted,
    /// From the shortest to the longest. No later form leaves out more.
    pub forms: Vec<Form<'a>>,
}

/// Blocks under a title; without any of its blocks it is not shown.
pub(super) struct Section<'a> {
    head: Head,
    pub blocks: Vec<Block<'a>>,
    /// The line that counts blocks that are not shown.
    more: fn(usize) -> String,
    end: &'static str,
}

enum Head {
    /// A fold with this title, which is open if it is short.
    Fold(String),
    /// A fold with this title, which is never open.
    Closed(String),
    /// A text.
    Plain(String),
}

impl<'a> Section<'a> {
    /// Returns a fold, which is open if it is short and what is open before it left room.
    pub(super) fn fold(title: String, blocks: Vec<Block<'a>>) -> Self {
        Self {
            head: Head::Fold(title),
            blocks,
            more: |_| String::new(),
            end: "</details>\n\n",
        }
    }

    /// Returns a fold that stays closed.
    pub(super) fn closed(title: String, blocks: Vec<Block<'a>>) -> Self {
        Self {
            head: Head::Closed(title),
            ..Self::fold(String::new(), blocks)
        }
    }

    /// Returns blocks after a text, with a text at their end.
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

    /// Sets the line that counts blocks that are not shown.
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

    /// The bytes of a section besides its blocks.
    fn frame(&self) -> usize {
        self.head(true).len() + (self.more)(self.blocks.len()).len() + self.end.len()
    }
}

/// The form of a block that was chosen.
#[derive(Default)]
struct Chosen {
    /// The number of its form, from 1.
    form: usize,
    text: Text,
}

/// A form of a block that may be taken.
struct Step {
    rank: Rank,
    section: usize,
    block: usize,
    /// The number of the form, from 1.
    form: usize,
}

/// Sections of which the most important forms were chosen.
pub(super) struct Filled {
    /// The text of each section; empty if it is not shown.
    pub texts: Vec<String>,
    /// The counts of what was left out.
    pub omitted: Omitted,
}

/// Chooses forms for at most `room` bytes.
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
    // There may be so many dangerous changes that their lines alone would take the room of all values.
    fill.take(&steps, room / 2, |rank| rank < Rank::Values(Danger::Grave));
    fill.take(&steps, room, |rank| {
        matches!(rank, Rank::Overview | Rank::Values(_))
    });
    // The rest of the room goes to all forms by rank, also to lines that had no room in the first half.
    fill.take(&steps, room, |_| true);
    Filled {
        texts: fill.texts(),
        omitted: fill.omitted(),
    }
}

/// All forms in the order in which they get room.
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
    // In a rank the order of the comment stays.
    steps.sort_by_key(|step| step.rank);
    steps
}

struct Fill<'s, 'a> {
    sections: &'s [Section<'a>],
    /// By section and block.
    chosen: Vec<Vec<Chosen>>,
    used: usize,
}

impl Fill<'_, '_> {
    /// Takes the forms of some ranks that fit. A later one may be smaller, so each is tried.
    fn take(&mut self, steps: &[Step], room: usize, is_wanted: impl Fn(Rank) -> bool) {
        for step in steps.iter().filter(|step| is_wanted(step.rank)) {
            let section = &self.sections[step.section];
            let chosen = &self.chosen[step.section];
            let now = &chosen[step.block];
            if now.form >= step.form || self.used >= room {
                continue;
            }
            // The first block of a section brings the title and the end of it.
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
            // An open fold takes room with its title too.
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

/// The texts of blocks. Lines of a list that follow each other are one list, without a blank line between two.
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
