//! The pages about the person who is signed in.

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{code, line},
};
use crate::{PortalPerson, site_path};

/// Renders the hidden field with the CSRF token of a form.
pub(super) fn token(csrf: &str) -> Markup {
    html! { input type="hidden" name="csrf" value=(csrf); }
}

/// Renders who is signed in, their roles, and the button to sign out. `roles` are pairs of a role and a glob of
/// stacks.
pub fn account(person: &PortalPerson, roles: &[(&str, &str)], csrf: &str) -> String {
    let main = html! {
        dl.record {
            dt { "Name" } dd { (line(&person.name)) }
            dt { "Subject" } dd { (code(&person.subject)) }
            dt { "Issuer" } dd { (code(&person.issuer)) }
        }
        section {
            h2 { "Roles" }
            ul.rows {
                @for (role, glob) in roles { li.row { span.name { (role) } " of " (code(glob)) } }
            }
        }
        form.filter method="post" action="logout" { (token(csrf)) button type="submit" { "Sign out" } }
    };
    Page::new("Account", site_path::ACCOUNT, PageMode::Personal, main).render()
}

/// Renders the page after signing out.
pub fn signed_out() -> String {
    let main = html! {
        p { "You are signed out of the portal. You may still be signed in at the login provider." }
        p { a href=(site_path::OVERVIEW) { "Sign in again" } }
    };
    Page::new("Signed out", "", PageMode::Served, main).render()
}
