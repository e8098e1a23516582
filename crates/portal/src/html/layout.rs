//! The layout that all pages share.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::parts::line;
use crate::site_path;

/// The content security policy of every page: styles, scripts and forms only from the portal itself.
pub const SECURITY: &str =
    "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'self'";

/// The referrer policy: other sites do not learn the URLs of pages. It is not `no-referrer`, because then the
/// portal's own forms would be sent with the origin `null` and be refused.
pub const REFERRER: &str = "same-origin";

/// The program that serves a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageMode {
    /// Static files. The script does everything that depends on the URL's query.
    Static,
    /// `konverge serve`, which filters and searches on the server.
    Served,
    /// `konverge serve` with a login. It also has pages about the person.
    Personal,
}

impl PageMode {
    /// Returns true for `konverge serve`.
    pub(super) fn is_served(self) -> bool {
        self != Self::Static
    }
}

/// The content of a page, without the layout.
pub(super) struct Page<'a> {
    pub title: &'a str,
    /// The number of folders between the root and the page.
    pub depth: usize,
    /// The path of the page, to mark it in the navigation.
    pub place: &'a str,
    /// True if the page can reload itself.
    pub refreshes: bool,
    /// True if the page loads the search data of all stacks.
    pub with_search_data: bool,
    pub mode: PageMode,
    pub main: Markup,
}

impl<'a> Page<'a> {
    /// Creates a page of the root folder. `place` is empty for a page that the navigation does not have.
    pub(super) fn new(title: &'a str, place: &'a str, mode: PageMode, main: Markup) -> Self {
        Self {
            title,
            depth: 0,
            place,
            refreshes: false,
            with_search_data: false,
            mode,
            main,
        }
    }

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

/// Renders the links that make a page reload itself. A server does it with a `Refresh` header; a static page needs
/// the script.
fn refresh(mode: PageMode) -> Markup {
    html! {
        p.refresh #refresh hidden[!mode.is_served()] {
            "Refresh: " a href="?refresh=60" { "every minute" } " · " a href="?" { "off" }
        }
    }
}

/// Renders an error page.
pub fn failure(title: &str, message: &str, hints: &[String], depth: usize) -> String {
    let main = html! {
        p.notice { (super::parts::prose(message)) }
        @for hint in hints { p { "hint: " (super::parts::prose(hint)) } }
    };
    Page {
        depth,
        ..Page::new(title, "", PageMode::Served, main)
    }
    .render()
}
