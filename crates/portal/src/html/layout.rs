//! The frame of every page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::parts::line;
use crate::site_path;

/// The content security policy of every page: only our own style and script, and no address but our own.
pub const SECURITY: &str =
    "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'self'";

/// Other sites learn no address of a page. Its own forms tell where they come from: with `no-referrer` their origin would
/// be `null`.
pub const REFERRER: &str = "same-origin";

/// Who answers the requests of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageMode {
    /// Files: what depends on the address is done by the script.
    Static,
    /// `konverge serve`: it filters and searches by itself.
    Served,
    /// `konverge serve` with a login: it has pages of the person too.
    Personal,
}

impl PageMode {
    /// Returns true if `konverge serve` answers.
    pub(super) fn is_served(self) -> bool {
        self != Self::Static
    }
}

/// A page before it has its frame.
pub(super) struct Page<'a> {
    pub title: &'a str,
    /// The number of folders between the page and the root.
    pub depth: usize,
    /// The address of the page in the navigation.
    pub place: &'a str,
    /// True if the page can load itself again.
    pub refreshes: bool,
    /// True if the page loads the names of all stacks.
    pub with_search_data: bool,
    pub mode: PageMode,
    pub main: Markup,
}

impl Page<'_> {
    pub(super) fn render(&self) -> String {
        let root = "../".repeat(self.depth);
        let mut pages = vec![
            (site_path::OVERVIEW, "Stacks"),
            (site_path::PROJECTS, "By project"),
            (site_path::ROLLOUTS, "Rollouts"),
            (site_path::TRENDS, "Trends"),
            (site_path::PERMISSIONS, "Permissions"),
            (site_path::SEARCH, "Search"),
        ];
        if self.mode == PageMode::Personal {
            pages.extend([
                (site_path::AUDIT, "Audit"),
                (site_path::FREEZE, "Freeze"),
                (site_path::ACCOUNT, "Account"),
            ]);
        }
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(PreEscaped(SECURITY));
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="referrer" content=(REFERRER);
                    title { (line(self.title)) " · Konverge" }
                    link rel="stylesheet" href={ (root) (site_path::STYLE) };
                    @if self.with_search_data { script src={ (root) (site_path::SEARCH_DATA) } defer {} }
                    script src={ (root) (site_path::SCRIPT) } defer {}
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header {
                        nav aria-label="Portal" {
                            @for (address, name) in pages {
                                a href={ (root) (address) } aria-current=[(address == self.place).then_some("page")] { (name) }
                            }
                        }
                        h1 { (line(self.title)) }
                        @if self.refreshes { (refresh(self.mode)) }
                    }
                    main #main { (self.main) }
                }
            }
        };
        page.into_string()
    }
}

/// The links that let a page load itself again. The server answers with a header that a browser obeys; a static page needs
/// the script for it.
fn refresh(mode: PageMode) -> Markup {
    html! {
        p.refresh #refresh hidden[!mode.is_served()] {
            "Refresh: " a href="?refresh=60" { "every minute" } " · " a href="?" { "off" }
        }
    }
}

/// A page that says what went wrong.
pub fn failure(title: &str, message: &str, hints: &[String], depth: usize) -> String {
    let main = html! {
        p.notice { (super::parts::prose(message)) }
        @for hint in hints { p { "hint: " (super::parts::prose(hint)) } }
    };
    Page {
        title,
        depth,
        place: "",
        refreshes: false,
        with_search_data: false,
        mode: PageMode::Served,
        main,
    }
    .render()
}
