//! [`BoundedPart`]: a part of a comment with a size limit of its own.

/// A part of a comment, and the number of lines that did not fit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BoundedPart {
    pub text: String,
    /// The number of lines that did not fit.
    pub left_out: usize,
}

impl BoundedPart {
    /// Returns an open fold with the lines that fit in `room` bytes, and a line with the number of the others.
    pub(crate) fn open_fold(
        title: &str,
        lines: impl Iterator<Item = String>,
        room: usize,
        hint: &str,
    ) -> Self {
        let mut part = Self::default();
        for line in lines {
            if part.text.len() + line.len() + title.len() + 200 > room {
                part.left_out += 1;
            } else {
                part.text.push_str(&line);
            }
        }
        if part.left_out > 0 {
            part.text
                .push_str(&format!("- and {} more{hint}\n", part.left_out));
        }
        part.text = format!(
            "<details open><summary>{title}</summary>\n\n{}\n</details>\n\n",
            part.text
        );
        part
    }
}
