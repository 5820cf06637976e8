// JSON as it was written: a parser that keeps each value's place in the text, so that a payload is
// shown byte for byte and a 30-digit number stays one.

// A node is {kind, from, to} and, for objects and arrays, items: [{name?, node}].
export function parse(text) {
    let at = 0;

    function value() {
        blank();
        const from = at;
        const first = text[at];
        if (first === '{' || first === '[') {
            const items = first === '{' ? members('}', true) : members(']', false);
            return { kind: first === '{' ? 'object' : 'array', items, from, to: at };
        }
        if (first === '"') {
            string();
            return { kind: 'string', from, to: at };
        }
        while (at < text.length && !',]} \n\r\t'.includes(text[at])) at++;
        const word = text.slice(from, at);
        const kind = { true: 'boolean', false: 'boolean', null: 'null' }[word] || 'number';
        if (kind === 'number' && !/^-?\d/.test(word)) throw new SyntaxError(`at ${from}`);
        return { kind, from, to: at };
    }

    function members(end, areNamed) {
        const items = [];
        at++;
        for (blank(); text[at] !== end; blank()) {
            if (at >= text.length) throw new SyntaxError('unfinished');
            const item = {};
            if (areNamed) {
                const from = at;
                string();
                item.name = JSON.parse(text.slice(from, at));
                blank();
                at++; // the colon
            }
            item.node = value();
            items.push(item);
            blank();
            if (text[at] === ',') at++;
        }
        at++;
        return items;
    }

    function string() {
        if (text[at] !== '"') throw new SyntaxError(`at ${at}`);
        for (at++; text[at] !== '"'; at++) {
            if (at >= text.length) throw new SyntaxError('unfinished');
            if (text[at] === '\\') at++;
        }
        at++;
    }

    function blank() {
        while (' \n\r\t'.includes(text[at] ?? '.')) at++;
    }

    return value();
}

// The text of one field of an object, as it stood in it; undefined without it.
export function field(text, name) {
    const item = parse(text).items?.find((one) => one.name === name);
    return item && text.slice(item.node.from, item.node.to);
}
