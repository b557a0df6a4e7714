# SPDX-License-Identifier: Apache-2.0
# C source -> the same lines without comments and with the insides of string and character literals gone.
# -v keep_strings=1 leaves literals as they are.
{
    out = ""; n = length($0)
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1); two = substr($0, i, 2)
        if (state == "comment") { if (two == "*/") { state = ""; i++; out = out " " } continue }
        if (state != "") { # in a literal, which state quotes
            if (c == "\\") { if (keep_strings) out = out two; i++; continue }
            if (keep_strings || c == state) out = out c
            if (c == state) state = ""
            continue
        }
        if (two == "/*") { state = "comment"; i++; continue }
        if (two == "//") break
        if (c == "\"" || c == "'") state = c
        out = out c
    }
    if (state != "comment") state = ""
    print out
}
