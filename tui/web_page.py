"""The page a browser gets: one terminal as large as the window, everything in it from this server.

The terminal is the script that `textual-serve` ships (xterm.js with Textual's small protocol); its own page would load
a font from elsewhere, so it is not used.
"""

from html import escape

FONT_PX = 15


def page(title: str, base: str, nonce: str) -> str:
    """`base` is the path of this viewer, with its token and without a slash at the end."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{base}/static/css/xterm.css">
<style>
@font-face {{ font-family: "Roboto Mono"; font-weight: 100 700; src: url("{base}/static/fonts/RobotoMono-VariableFont_wght.ttf"); }}
html, body {{ margin: 0; height: 100%; background: #0d1017; overflow: hidden; }}
#terminal {{ width: 100vw; height: 100vh; }}
#said {{ display: none; position: fixed; inset: 0; align-items: center; justify-content: center;
  background: #0d1017e6; color: #cdd6f4; font: {FONT_PX}px "Roboto Mono", monospace; }}
body.-closed #said, body.no-terminal #said {{ display: flex; }}
</style>
</head>
<body>
<div id="terminal" class="textual-terminal" data-font-size="{FONT_PX}"></div>
<div id="said">This viewer has ended. Reload the page for a new one; the run is not touched.</div>
<script nonce="{nonce}">
const terminal = document.getElementById("terminal");
terminal.dataset.sessionWebsocketUrl = "ws://" + location.host + "{base}/ws";
function fail(text) {{
  document.getElementById("said").textContent = text;
  document.body.classList.add("no-terminal");
}}
if (document.createElement("canvas").getContext("webgl2") === null) {{
  fail("The terminal needs WebGL 2, which this browser does not have or has switched off.");
}} else {{
  // The cells are measured once, so the font must be there first.
  Promise.all(["15px", "bold 15px"].map((font) => document.fonts.load(font + " 'Roboto Mono'"))).then(() => {{
    const script = document.createElement("script");
    script.src = "{base}/static/js/textual.js";
    script.onload = () => window.onload();
    script.onerror = () => fail("The terminal's script could not be loaded: start the viewer again.");
    document.body.append(script);
  }});
}}
</script>
</body>
</html>
"""  # noqa: E501 - the page's own lines
