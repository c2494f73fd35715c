//! Advice on a new password that is not accepted.

messages! {
    PASSWORD_TOO_SHORT
        "This password is too short. Use at least 8 characters."
        "密码过短，请至少使用 8 个字符。"
    PASSWORD_TOO_LONG
        "This password is too long. Use at most 256 characters."
        "密码过长，请最多使用 256 个字符。"
    PASSWORD_CONTROL
        "This password contains line breaks, tabs or other control characters. Remove them."
        "密码中含有换行、制表符等控制字符，请删除。"
    PASSWORD_ADD_WORDS
        "This password is easy to guess. Add another word or two, preferably uncommon ones."
        "密码太容易被猜到，请再加一两个不常用的词。"
    PASSWORD_NO_KEYBOARD_PATTERN
        "This password is easy to guess: it follows a pattern on the keyboard. Use a few uncommon words instead."
        "密码太容易被猜到：它由键盘上相邻的按键组成，请改用几个不常用的词。"
    PASSWORD_NO_REPEATS
        "This password is easy to guess: repeating characters or words doesn't make it stronger. Use a few uncommon words instead."
        "密码太容易被猜到：重复字符或词语不会让密码更安全，请改用几个不常用的词。"
    PASSWORD_NO_SEQUENCE
        "This password is easy to guess: it contains a sequence such as abcd or 6543. Use a few uncommon words instead."
        "密码太容易被猜到：它包含 abcd、6543 这类连续字符，请改用几个不常用的词。"
    PASSWORD_NO_COMMON_PASSWORD
        "This password is easy to guess: it's a commonly used password or close to one. Use a few uncommon words instead."
        "密码太容易被猜到：它与常见密码相同或相近，请改用几个不常用的词。"
    PASSWORD_NO_SINGLE_WORD
        "This password is easy to guess: it's a single word. Add another word or two, preferably uncommon ones."
        "密码太容易被猜到：它只是一个单词，请再加一两个不常用的词。"
    PASSWORD_NO_NAMES
        "This password is easy to guess: it contains a common name. Use a few uncommon words instead."
        "密码太容易被猜到：它包含常见的人名，请改用几个不常用的词。"
    PASSWORD_NO_DATES
        "This password is easy to guess: it contains a year or a date. Use a few uncommon words instead."
        "密码太容易被猜到：它包含年份或日期，请改用几个不常用的词。"
    PASSWORD_CAPITALS_HELP_LITTLE
        "This password is easy to guess: capital letters don't help much. Add another word or two."
        "密码太容易被猜到：大写字母作用不大，请再加一两个词。"
    PASSWORD_SUBSTITUTIONS_HELP_LITTLE
        "This password is easy to guess: replacing letters, such as @ for a, doesn't help much. Add another word or two."
        "密码太容易被猜到：用 @ 代替 a 这类替换作用不大，请再加一两个词。"
    PASSWORD_REVERSING_HELPS_LITTLE
        "This password is easy to guess: writing a word backwards doesn't help much. Add another word or two."
        "密码太容易被猜到：把单词倒过来写作用不大，请再加一两个词。"
    PASSWORD_NOTHING_ABOUT_YOU
        "This password is easy to guess: it contains your name, your employee ID or the name of this service. Leave them out."
        "密码太容易被猜到：它包含您的姓名、员工编号或本服务的名称，请不要使用这些内容。"
}
