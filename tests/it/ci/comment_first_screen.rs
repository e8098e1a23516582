//! The first screen of a comment, for eight kinds of change: what happens, how dangerous it is, how much of it is
//! production, and what to do next. `scripts/picture` draws the golden files.

use konverge_report::{COMMENT_BUDGET, html, markdown};

use crate::support::{golden::golden, sample_kinds};

/// A screen of a phone, 390 by 844 pixels, has about so many lines of text of about so many characters.
const LINES: usize = 28;
const CHARACTERS: usize = 46;

/// The beginning of a comment that a phone shows without scrolling, at most: a line wraps, and what is folded has one
/// line.
fn first_screen(body: &str) -> String {
    let mut room = LINES;
    let shown = body.lines().skip(1).take_while(|line| {
        let rows = line.chars().count().div_ceil(CHARACTERS).max(1);
        let fits = rows <= room;
        room = room.saturating_sub(rows);
        fits
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_first_screen_says_what_happens_how_dangerous_it_is_and_what_to_do() {
    for kind in sample_kinds::kinds() {
        let body = markdown::comment(&kind.sample.input(COMMENT_BUDGET)).body;
        let screen = first_screen(&body);
        for part in kind.says {
            assert!(screen.contains(part), "{}: {part}: {screen}", kind.name);
        }
        assert!(screen.lines().next().unwrap().contains(kind.says[0]), "{screen}");
        golden(&format!("comment-{}.md", kind.name), &body);
    }
}

/// The page has the same parts at its top, in the same order: the verdict, the sums, the next step, then the alerts and
/// the changes.
#[test]
fn the_page_has_the_order_of_the_comment() {
    for kind in sample_kinds::kinds() {
        let body = markdown::comment(&kind.sample.input(COMMENT_BUDGET)).body;
        let page = html::report(&kind.sample.input(0));
        let (_, page) = page.split_once("<body>").unwrap();
        let next = body.lines().find_map(|line| line.strip_prefix("**Next**: "));
        let next = format!("<strong>Next</strong>: {}", next.unwrap());
        let has_alerts = body.contains("> [!");
        let mut places = vec![page.find(kind.says[0]), page.find(&next)];
        if has_alerts {
            places.push(page.find("Look at these first"));
        }
        places.push(
            page.find("<details class=\"item\"")
                .or_else(|| page.find("<h2>Stacks</h2>")),
        );
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{}: {places:?}: {page}",
            kind.name
        );
        // The groups, and the stacks that are not in one, are the same ones in the same order.
        let groups = |text: &str, mark: &str| text.matches(mark).count();
        assert_eq!(
            groups(&body, "<b>Same change in "),
            groups(page, " id=\"group-"),
            "{}",
            kind.name
        );
        let in_order = |text: &str, before: &str, after: &str| {
            let stacks = kind.sample.plan.stacks.iter().map(|stack| stack.id.as_str());
            let found = stacks.filter_map(|id| Some((text.find(&format!("{before}{id}{after}"))?, id)));
            let mut found: Vec<_> = found.collect();
            found.sort_unstable();
            found.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        };
        let shown = in_order(&body, "<b><code>", "</code></b>");
        let mut of_page = in_order(page, "<span class=\"name\">", "</span>");
        of_page.retain(|id| shown.contains(id));
        assert_eq!(shown, of_page, "{}", kind.name);
    }
}
