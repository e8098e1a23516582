// What draws the pictures comes from this site (`make site` puts it beside this file), and only to pages that have any.
// It has to be there before the page is complete, or the theme loads it from elsewhere.
if (document.querySelector(".mermaid")) {
  const drawing = new URL("mermaid.min.js", document.currentScript.src);
  document.write(`<script src="${drawing}"></script>`);
}
