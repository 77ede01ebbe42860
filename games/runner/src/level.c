/* The map: columns brought into memory and onto the screen before they come into sight, and the camera. */
#include "game.h"

#define AHEAD 23        /* columns from the left edge of the screen that are kept ready */
#define SPAWN_AHEAD 17
#define CAMERA_X 112    /* the player is kept left of this */

extern const u8 block_tl[], block_tr[], block_bl[], block_br[], block_palette[];
extern const u8 *const level_order[], *const level_columns[];
extern const u8 level_pole[], level_width[], level_time[], level_theme[];

u8 pole_column, door_column;
static const u8 *order, *columns;
static u8 width, next_column, last_page;

static const u8 *column_data(u8 column) {
    if (column >= width) {
        column = width - 1;
    }
    return columns + ((u16)order[column] << 4);
}

/* Attributes hold the palettes of 2x2 blocks, so they are made for a column and its right neighbour at once. */
static void make_attributes(u8 column) {
    static const u8 *left, *right;
    static u8 i, row;
    left = column_data(column);
    right = column_data(column + 1);
    row = 0;
    for (i = 0; i < 7; ++i) {
        column_attr[i] = block_palette[left[row]] | (block_palette[right[row]] << 2);
        ++row;
        if (row < 13) {
            column_attr[i] |= (block_palette[left[row]] << 4) | (block_palette[right[row]] << 6);
        }
        ++row;
    }
}

static void make_column(void) {
    static const u8 *data;
    static u8 *to;
    static u8 i, k, block;
    data = column_data(next_column);
    to = block_buffer + (next_column & 15);
    column_hi = 0x20;
    if (next_column & 16) {
        to += 208;
        column_hi = 0x24;
    }
    column_lo = 0x80 + ((next_column & 15) << 1);
    k = 0;
    for (i = 0; i < 13; ++i) {
        block = data[i];
        *to = block;
        to += 16;
        column_left[k] = block_tl[block];
        column_right[k] = block_tr[block];
        ++k;
        column_left[k] = block_bl[block];
        column_right[k] = block_br[block];
        ++k;
    }
    attr_hi = 0;
    if (!(next_column & 1)) {
        make_attributes(next_column);
        attr_hi = column_hi + 3;
        attr_lo = 0xC8 + ((next_column & 15) >> 1);
    }
    ++next_column;
    column_ready = 1;
}

void load_level(void) {
    if (area >= LEVELS) {
        area = 0;
    }
    order = level_order[area];
    columns = level_columns[area];
    width = level_width[area];
    pole_column = level_pole[area];
    door_column = pole_column + 6;
    timer[0] = level_time[area];
    timer[1] = timer[2] = 0;
    screen_page = screen_x = show_page = show_x = 0;
    last_page = (width >> 4) - 1;
    next_column = 0;
    clear_enemies();
    clear_screen(level_theme[area]);
    draw_status_labels();
    while (next_column <= AHEAD) {
        make_column();
        wait_frame();
    }
    spawn_enemies(SPAWN_AHEAD);
}

static u8 left_column(void) {
    return (screen_page << 4) | (screen_x >> 4);
}

void follow_player(void) {
    static u16 x, camera;
    static u8 column;
    x = ((u16)player_page << 8) | player_x;
    camera = ((u16)screen_page << 8) | screen_x;
    if (x > camera + CAMERA_X && screen_page < last_page) {
        camera = x - CAMERA_X;
        screen_page = camera >> 8;
        screen_x = camera;
        if (screen_page >= last_page) {
            screen_page = last_page;
            screen_x = 0;
        }
    }
    show_page = screen_page;
    show_x = screen_x;
    column = left_column();
    if (next_column <= column + AHEAD) {
        make_column();
    }
    spawn_enemies(column + SPAWN_AHEAD);
}

static void point_block(u8 page, u8 x, u8 y) {
    static u16 where;
    where = ((u16)(y & 0xF0) << 2) + ((x & 0xF0) >> 3) + 0x2000;
    if (page & 1) {
        where += 0x400;
    }
    block_hi = where >> 8;
    block_lo = where;
    block_ready = 1;
}

void set_block(u8 page, u8 x, u8 y, u8 block) {
    static u8 *to;
    to = block_buffer + (((y - 32) & 0xF0) | (x >> 4));
    if (page & 1) {
        to += 208;
    }
    *to = block;
    block_tiles[0] = block_tl[block];
    block_tiles[1] = block_tr[block];
    block_tiles[2] = block_bl[block];
    block_tiles[3] = block_br[block];
    point_block(page, x, y);
}

void erase_block(u8 page, u8 x, u8 y) {
    block_tiles[0] = block_tiles[1] = block_tiles[2] = block_tiles[3] = 0;
    point_block(page, x, y);
}
