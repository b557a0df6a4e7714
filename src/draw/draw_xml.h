/* SPDX-License-Identifier: Apache-2.0 */
/* Text in XML and in the HTML that stands in XML attributes. */
#ifndef KEEL_GRAPH_DRAW_XML_H
#define KEEL_GRAPH_DRAW_XML_H

#include "core/buf.h"

#include <string.h>

/* `bytes` bytes of text, escaped `times` times: 1 for XML, 2 for HTML inside of an XML attribute. */
static inline void draw_put_escaped(buf *b, const char *text, size_t bytes, int times) {
    for (size_t i = 0; i < bytes; i++) {
        const char *entity = NULL;
        switch (text[i]) {
        case '&':
            entity = "amp;";
            break;
        case '<':
            entity = "lt;";
            break;
        case '>':
            entity = "gt;";
            break;
        case '"':
            entity = "quot;";
            break;
        default:
            break;
        }
        if (!entity) {
            buf_put(b, text + i, 1);
            continue;
        }
        buf_str(b, "&");
        for (int k = 1; k < times; k++) buf_str(b, "amp;");
        buf_str(b, entity);
    }
}

#endif
