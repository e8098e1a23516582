//! The marker: the first line of every comment and issue that Konverge maintains. Konverge finds its comments by it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::Shard;

const OPEN: &str = "<!-- konverge:v1 ";
const CLOSE: &str = " -->";

/// The data of a marker, written as `<!-- konverge:v1 BASE64URL(JSON) -->`. Because of the base64, no content can
/// close the HTML comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommentMarker {
    /// The purpose of the comment or issue.
    pub kind: MarkerKind,
    /// Distinguishes several comments or issues of one kind: the shard of a preview (`2/8`), the stack of an
    /// issue. Empty if there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The commit that the content describes; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
    /// The id of the run that last wrote the comment.
    #[serde(default)]
    pub run: u64,
    /// The attempt of that run.
    #[serde(default)]
    pub attempt: u32,
    /// The digest of the content. Equal digests mean equal content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

/// The purpose of a comment or issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkerKind {
    /// The preview of a pull request.
    Preview,
    /// The result of an apply, or the reason why it stopped.
    Apply,
    /// The drift of a stack.
    Drift,
    /// A stack whose apply was stopped because a part of the plan was not reviewed.
    Unreviewed,
    /// The results of the stack tests of a pull request.
    Tests,
}

impl CommentMarker {
    /// Creates a marker with a kind and a scope only.
    pub fn new(kind: MarkerKind, scope: impl Into<String>) -> Self {
        Self {
            kind,
            scope: scope.into(),
            head: String::new(),
            run: 0,
            attempt: 0,
            digest: String::new(),
        }
    }

    /// Returns the marker as a line of text.
    pub fn line(&self) -> String {
        let json = serde_json::to_vec(self).expect("a marker is plain JSON");
        format!("{OPEN}{}{CLOSE}", URL_SAFE_NO_PAD.encode(json))
    }

    /// Parses the marker in the first line of a text. Returns `None` if that line is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.trim_end();
        let encoded = line.strip_prefix(OPEN)?.strip_suffix(CLOSE)?;
        let json = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        serde_json::from_slice(&json).ok()
    }

    /// Returns true if both markers identify the same comment or issue.
    pub fn same_place(&self, other: &Self) -> bool {
        self.kind == other.kind && self.scope == other.scope
    }

    /// Returns true if this marker was written by a later run, or by a later attempt of the same run.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        (self.run, self.attempt) > (other.run, other.attempt)
    }

    /// Returns true if this marker makes `other` obsolete: `other` belongs to an earlier preview that was split into
    /// another number of shards, or not split.
    pub fn voids(&self, other: &Self) -> bool {
        let shares = |marker: &Self| marker.scope.parse().ok().map(Shard::count);
        let previews = self.kind == MarkerKind::Preview && other.kind == MarkerKind::Preview;
        previews && other.run < self.run && shares(self) != shares(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_nothing_in_it_can_close_the_comment() {
        let mut marker = CommentMarker::new(MarkerKind::Preview, "--><b>leg 1/8");
        marker.head = "a".repeat(40);
        marker.run = 7;
        let line = marker.line();
        assert_eq!(line.matches("-->").count(), 1, "{line}");
        assert_eq!(CommentMarker::parse(&format!("{line}\nbody")), Some(marker));
    }

    #[test]
    fn only_a_whole_first_line_counts() {
        let line = CommentMarker::new(MarkerKind::Preview, "").line();
        assert_eq!(CommentMarker::parse(&format!("text\n{line}")), None);
        assert_eq!(CommentMarker::parse(&format!("{line} text")), None);
        assert_eq!(CommentMarker::parse("<!-- konverge:v1 !!! -->"), None);
    }

    #[test]
    fn a_rerun_is_newer() {
        let mut first = CommentMarker::new(MarkerKind::Preview, "");
        first.run = 5;
        first.attempt = 1;
        let mut rerun = first.clone();
        rerun.attempt = 2;
        assert!(rerun.is_newer_than(&first) && !first.is_newer_than(&rerun) && !first.is_newer_than(&first));
    }

    #[test]
    fn shares_of_an_earlier_deal_have_no_place_any_more() {
        let preview = |scope: &str, run| CommentMarker {
            run,
            ..CommentMarker::new(MarkerKind::Preview, scope)
        };
        let now = preview("2/3", 9);
        for (scope, run, void) in [
            ("", 8, true),
            ("2/8", 8, true),
            ("3/3", 8, false),
            ("2/3", 8, false),
            ("2/8", 9, false),
            ("2/8", 10, false),
        ] {
            assert_eq!(now.voids(&preview(scope, run)), void, "{scope} of {run}");
        }
        assert!(preview("", 9).voids(&preview("1/2", 8)));
        assert!(!now.voids(&CommentMarker::new(MarkerKind::Apply, "")));
    }
}
