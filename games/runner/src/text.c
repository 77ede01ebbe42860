/* Letters, the status bar, palettes, the score. */
#include "game.h"

/* Background: sky; then earth, green, white, gold, three colours each. One line for each theme. */
static const u8 themes[4][13] = {
    {0x21, 0x07, 0x17, 0x2A, 0x0A, 0x1A, 0x29, 0x00, 0x31, 0x30, 0x08, 0x27, 0x38},
    {0x04, 0x07, 0x17, 0x27, 0x0B, 0x1B, 0x2B, 0x03, 0x34, 0x30, 0x07, 0x26, 0x37},
    {0x02, 0x0C, 0x1C, 0x2B, 0x0B, 0x1A, 0x2A, 0x01, 0x12, 0x30, 0x07, 0x17, 0x28},
    {0x11, 0x01, 0x21, 0x30, 0x0C, 0x1C, 0x31, 0x00, 0x10, 0x30, 0x08, 0x27, 0x37},
};
/* Sprites: fox, grub, beetle and hopper, gold. */
static const u8 sprite_colours[12] = {0x0F, 0x27, 0x37, 0x0F, 0x15, 0x36, 0x0F, 0x1B, 0x3A, 0x0F, 0x17, 0x28};
static const u8 logo[6][5] = {
    {0xE0, 0x90, 0xE0, 0xA0, 0x90}, {0x90, 0x90, 0x90, 0x90, 0xF0}, {0x90, 0xD0, 0xB0, 0x90, 0x90},
    {0x90, 0xD0, 0xB0, 0x90, 0x90}, {0xF0, 0x80, 0xE0, 0x80, 0xF0}, {0xE0, 0x90, 0xE0, 0xA0, 0x90},
};

static void point(u16 where) {
    PPU_ADDR = where >> 8;
    PPU_ADDR = where;
}

static void fill(u16 where, u8 what, u16 count) {
    point(where);
    while (count) {
        PPU_DATA = what;
        --count;
    }
}

void put_text(u16 where, const char *text) {
    wait_frame();
    point(where);
    while (*text) {
        PPU_DATA = *text == ' ' ? 0 : *text;
        ++text;
    }
}

static void load_palettes(u8 theme) {
    static u8 i, k;
    static const u8 *from;
    from = themes[theme];
    wait_frame();
    point(0x3F00);
    k = 1;
    for (i = 0; i < 16; ++i) {
        if (i & 3) {
            PPU_DATA = from[k];
            ++k;
        } else {
            PPU_DATA = from[0];
        }
    }
    k = 0;
    for (i = 0; i < 16; ++i) {
        if (i & 3) {
            PPU_DATA = sprite_colours[k];
            ++k;
        } else {
            PPU_DATA = from[0];
        }
    }
    shimmer = from[12];
}

/* Dark letters' background for the screens between levels. */
void set_black(void) {
    wait_frame();
    point(0x3F00);
    PPU_DATA = 0x0F;
}

void clear_screen(u8 theme) {
    hud_on = 0;
    hide_sprites();
    wait_frame();
    fill(0x2000, 0, 0x3C0);
    fill(0x23C0, 0xAA, 0x40);
    fill(0x2400, 0, 0x3C0);
    fill(0x27C0, 0xAA, 0x40);
    load_palettes(theme);
}

void draw_status_labels(void) {
    static char name[4];
    put_text(0x2042, "SCORE     COINS  LEVEL  TIME");
    put_text(0x2068, "0");
    put_text(0x206C, "*");
    name[0] = '1' + world;
    name[1] = '-';
    name[2] = '1' + level;
    name[3] = 0;
    put_text(0x2074, name);
    wait_frame();
    point(0x23C2);
    PPU_DATA = 0xEA; /* the mark is gold */
    point(0x206B);
    PPU_DATA = TILE_MARK;
    hud_on = 1;
}

void draw_logo(void) {
    static u8 row, letter, bits, k;
    wait_frame();
    fill(0x2080, 0, 0x140);
    fill(0x23C8, 0xFF, 16);
    for (row = 0; row < 5; ++row) {
        wait_frame();
        point(0x20C1 + ((u16)row << 5));
        for (letter = 0; letter < 6; ++letter) {
            bits = logo[letter][row];
            for (k = 0; k < 5; ++k) {
                PPU_DATA = (bits & 0x80) ? TILE_LOGO : 0;
                bits <<= 1;
            }
        }
    }
}

void add_score(u8 digit, u8 amount) {
    score[digit] += amount;
    while (score[digit] > 9) {
        score[digit] -= 10;
        if (digit == 0) {
            return;
        }
        --digit;
        ++score[digit];
    }
}

void add_coin(void) {
    sound_coin();
    add_score(4, 2);
    ++coins;
    ++coin_digits[1];
    if (coin_digits[1] > 9) {
        coin_digits[1] = 0;
        ++coin_digits[0];
    }
    if (coins >= 100) {
        coins = coin_digits[0] = coin_digits[1] = 0;
        ++lives;
    }
}
